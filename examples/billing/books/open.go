package books

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// tables are those of SQLite. Sums are decimals in texts, and exact.
const tables = `
CREATE TABLE IF NOT EXISTS billing_batches (
	number BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, file TEXT NOT NULL,
	records BIGINT NOT NULL, rejected BIGINT NOT NULL, items BIGINT NOT NULL,
	handed_over TEXT NOT NULL, reported TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS billing_sums (
	batch BIGINT NOT NULL, account TEXT NOT NULL, tariff TEXT NOT NULL, currency TEXT NOT NULL,
	records BIGINT NOT NULL, quantity TEXT NOT NULL, amount TEXT NOT NULL,
	PRIMARY KEY (account, tariff, currency, batch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS billing_rejections (
	batch BIGINT NOT NULL, line BIGINT NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL, text TEXT NOT NULL,
	PRIMARY KEY (batch, line)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS billing_records (id TEXT NOT NULL PRIMARY KEY, batch BIGINT NOT NULL) WITHOUT ROWID;
`

// ForPostgres makes the tables those of PostgreSQL, with texts in the order of their bytes.
var forPostgres = strings.NewReplacer(" TEXT ", ` TEXT COLLATE "C" `, " WITHOUT ROWID", "")

const (
	applicationID = 0x4d694c62 // marks a file of SQLite as ours
	version       = 2          // of the tables
)

// ErrForeign is the error of a file that is not ours. Nothing was written to it.
var ErrForeign = errors.New("this file is not the books of this version of the program: choose another path")

// Open opens the books at an address: postgres://… is PostgreSQL, anything else the path of an SQLite file. It makes the
// file and the tables, but neither the folder nor the PostgreSQL database.
func Open(ctx context.Context, address string) (*Books, error) {
	scheme, _, isURL := strings.Cut(address, "://")
	var b *Books
	var err error
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		b, err = openPostgres(ctx, address)
	case isURL || address == "":
		err = errors.New("the address must be the path of an SQLite file, or postgres://USER@HOST/DATABASE")
	default:
		b, err = openSQLite(ctx, address)
	}
	if err != nil {
		return nil, fmt.Errorf("open the books %s: %w", withoutPassword(address), err)
	}
	return b, nil
}

func withoutPassword(address string) string {
	if u, err := url.Parse(address); err == nil {
		return u.Redacted()
	}
	return strconv.Quote(strings.SplitN(address, "://", 2)[0]) + "…"
}

func openPostgres(ctx context.Context, address string) (*Books, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 10 * time.Second
	}
	config.RuntimeParams["synchronous_commit"] = "on"
	b := &Books{
		db:      stdlib.OpenDB(*config),
		address: fmt.Sprintf("PostgreSQL database %s at %s", config.Database, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))),
		lock:    fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", applicationID),
	}
	b.db.SetMaxOpenConns(4)
	if err := b.makeTables(ctx, forPostgres.Replace(tables)); err != nil {
		return nil, errors.Join(err, b.db.Close())
	}
	return b, nil
}

// openSQLite opens a file whose commits are written through to the disk. Reports read it while a batch is recorded.
func openSQLite(ctx context.Context, path string) (*Books, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") { // a drive of Windows
		slashed = "/" + slashed
	}
	options := url.Values{"_txlock": {"immediate"}, "_pragma": {"busy_timeout(5000)", "synchronous(FULL)", "fullfsync(1)"}}
	db, err := sql.Open("sqlite", "file://"+(&url.URL{Path: slashed}).EscapedPath()+"?"+options.Encode())
	if err != nil {
		return nil, err
	}
	b := &Books{db: db, address: "SQLite file " + path}
	b.db.SetMaxOpenConns(4) // each has a cache of 2 MB
	if err := b.prepare(ctx); err != nil {
		return nil, errors.Join(err, b.db.Close())
	}
	return b, nil
}

// prepare makes the tables of a new file. Several processes may do so at the same time: SQLite does not wait for the
// lock while the write-ahead log is switched on, so that step is repeated.
func (b *Books) prepare(ctx context.Context) error {
	const find = `SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version), (SELECT COUNT(*) FROM sqlite_schema)`
	var id, found, count int
	if err := b.db.QueryRowContext(ctx, find).Scan(&id, &found, &count); err != nil {
		return err
	}
	if id == applicationID && found == version {
		return nil
	}
	if id != 0 || found != 0 || count != 0 {
		return ErrForeign
	}
	for deadline := time.Now().Add(5 * time.Second); ; {
		_, err := b.db.ExecContext(ctx, "PRAGMA journal_mode = WAL")
		var failed *sqlite.Error
		if busy := errors.As(err, &failed) && failed.Code()&0xff == sqlitelib.SQLITE_BUSY; !busy || time.Now().After(deadline) {
			if err != nil {
				return err
			}
			break
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return b.makeTables(ctx, fmt.Sprintf("%s PRAGMA application_id = %d; PRAGMA user_version = %d;", tables, applicationID, version))
}

func (b *Books) makeTables(ctx context.Context, statements string) error {
	return b.write(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, statements)
		return err
	})
}
