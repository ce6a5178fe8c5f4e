package books

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

const (
	// connectTimeout is for how long a connection is attempted, unless the address says otherwise.
	connectTimeout = 10 * time.Second

	// maxPostgresConnections is how many the books use: a recorder has one, a report one.
	maxPostgresConnections = 4

	// creationLock is the number of the advisory lock of those that make tables.
	creationLock = applicationID

	application = "millrace billing books"
)

const postgresTables = `
CREATE TABLE @about (application TEXT NOT NULL, version INTEGER NOT NULL);
CREATE TABLE @batches (
	name TEXT COLLATE "C" PRIMARY KEY, file TEXT NOT NULL,
	records BIGINT NOT NULL, billed BIGINT NOT NULL, rejected BIGINT NOT NULL, items BIGINT NOT NULL,
	handed_over TIMESTAMPTZ NOT NULL, reported TIMESTAMPTZ NOT NULL
);
CREATE TABLE @sums (
	batch TEXT COLLATE "C" NOT NULL REFERENCES @batches, account TEXT COLLATE "C" NOT NULL,
	tariff TEXT COLLATE "C" NOT NULL, currency TEXT COLLATE "C" NOT NULL,
	records BIGINT NOT NULL, quantity NUMERIC NOT NULL, amount NUMERIC NOT NULL,
	PRIMARY KEY (batch, account, tariff, currency)
);
CREATE TABLE @rejections (
	batch TEXT COLLATE "C" NOT NULL REFERENCES @batches, number BIGINT NOT NULL,
	file TEXT NOT NULL, line BIGINT NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL,
	PRIMARY KEY (batch, number)
);
`

func openPostgres(ctx context.Context, address string) (*Books, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, fmt.Errorf("billing books: the address of PostgreSQL: %w: it is postgres://USER:PASSWORD@HOST:5432/DATABASE", err)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = application
	}
	b := &Books{
		db: stdlib.OpenDB(*config),
		dialect: dialect{
			name:      fmt.Sprintf("PostgreSQL database %s at %s", config.Database, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))),
			schema:    "millrace_billing.",
			numbered:  true,
			beginning: "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'",
			reading:   sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true},
			advice:    postgresAdvice,
		},
	}
	b.db.SetMaxOpenConns(maxPostgresConnections)
	if err := b.makeSchema(ctx); err != nil {
		_ = b.db.Close()
		return nil, b.dialect.explain("opening the billing books", err)
	}
	return b, nil
}

// makeSchema makes the schema and the tables if they are missing. If they are there, it writes
// nothing, so that a user who may only read can make a report.
func (b *Books) makeSchema(ctx context.Context) error {
	made, err := b.checkSchema(ctx, b.db)
	if err != nil || made {
		return err
	}
	return b.transaction(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", creationLock); err != nil {
			return err
		}
		if made, err := b.checkSchema(ctx, tx); err != nil || made {
			return err // another process has made them
		}
		exists := false
		if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'millrace_billing')").Scan(&exists); err != nil {
			return err
		}
		if !exists { // and not IF NOT EXISTS, which needs the right to make it even if it is there
			if _, err := tx.ExecContext(ctx, "CREATE SCHEMA millrace_billing"); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, b.dialect.sql(postgresTables)); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, b.dialect.sql("INSERT INTO @about VALUES (?, ?)"), application, version)
		return err
	})
}

// checkSchema returns whether our tables are there. If the schema has other tables it is not ours.
func (b *Books) checkSchema(ctx context.Context, from querier) (made bool, err error) {
	const find = "SELECT count(*), count(*) FILTER (WHERE relname = 'about') FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'millrace_billing'"
	foreign := fmt.Errorf("%w: another program has the schema millrace_billing in it: give another database", ErrForeign)
	var tables, about int
	if err := from.QueryRowContext(ctx, find).Scan(&tables, &about); err != nil || tables == 0 {
		return false, err
	}
	if about == 0 {
		return false, foreign
	}
	var who string
	var found int
	switch err := from.QueryRowContext(ctx, b.dialect.sql("SELECT application, version FROM @about")).Scan(&who, &found); {
	case errors.Is(err, sql.ErrNoRows), isUndefined(err), err == nil && who != application:
		return false, foreign
	case err != nil:
		return false, err
	case found > version:
		return false, fmt.Errorf("%w: they have version %d, and this one reads %d", ErrNewer, found, version)
	default:
		return true, nil
	}
}
