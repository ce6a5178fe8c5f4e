package books

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

// Books are in a database. Get them from Open and close them. They are safe for concurrent use, also by
// several processes.
type Books struct {
	db      *sql.DB
	dialect dialect
}

// Open opens the books at an address: postgres://… is PostgreSQL, anything else the path of an SQLite
// file. It makes what is missing: the file, but not its folder; the tables, but not the PostgreSQL
// database. It refuses the database of another program with ErrForeign, and one that a newer
// version made with ErrNewer.
func Open(ctx context.Context, address string) (*Books, error) {
	return open(ctx, address, lockWait)
}

// open is Open with the time that SQLite waits for a lock.
func open(ctx context.Context, address string, wait time.Duration) (*Books, error) {
	scheme, _, isURL := strings.Cut(address, "://")
	switch {
	case isURL && (scheme == "postgres" || scheme == "postgresql"):
		return openPostgres(ctx, address)
	case isURL:
		return nil, fmt.Errorf("billing books: the address begins with %s://, which is no database that can be used: it is the path of an SQLite file, or postgres://USER@HOST/DATABASE", scheme)
	case address == "":
		return nil, fmt.Errorf("billing books: the address is empty: it is the path of an SQLite file, or postgres://USER@HOST/DATABASE")
	default:
		return openSQLite(ctx, address, wait)
	}
}

// Address returns where the books are, for people. It contains no password.
func (b *Books) Address() string { return b.dialect.name }

// Close closes the books. What was recorded is safe without it.
func (b *Books) Close() error {
	if err := b.db.Close(); err != nil {
		return b.dialect.explain("closing the billing books", err)
	}
	return nil
}

// Record records a batch in one transaction, and returns whether it is the first that does so. If it
// is in the books, nothing changes, and first is false. The error of a batch that can never be
// recorded is ErrInvalid, also if another batch of its name is in the books. After any other nothing of the batch is recorded, or all of
// it if only the answer was lost: record it again. Accounts, tariffs and currencies
// must be UTF-8 without NUL; such characters are replaced in the texts of rejections.
func (b *Books) Record(ctx context.Context, batch *Batch, sums *totals.Totals, rejections []records.Rejection) (first bool, err error) {
	if err := check(batch, sums, rejections); err != nil {
		return false, fmt.Errorf("billing books: recording batch %q: %w", batch.Name, err)
	}
	if first, err = b.record(ctx, batch, sums, rejections); err != nil {
		return false, b.dialect.explain(fmt.Sprintf("recording batch %q in the billing books", batch.Name), err)
	}
	return first, nil
}

func (b *Books) record(ctx context.Context, batch *Batch, sums *totals.Totals, rejections []records.Rejection) (first bool, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // of no effect after the commit
	if b.dialect.beginning != "" {
		if _, err := tx.ExecContext(ctx, b.dialect.beginning); err != nil {
			return false, err
		}
	}
	// A second recorder waits here until the first has ended. Then it inserts nothing if that was
	// committed.
	inserted, err := tx.ExecContext(ctx, b.dialect.sql(insertBatch), batch.Name, batch.File, batch.Records,
		batch.Records-int64(len(rejections)), len(rejections), batch.Items, stamp(batch.HandedOver), stamp(batch.Reported))
	if err != nil {
		return false, err
	}
	if n, err := inserted.RowsAffected(); err != nil {
		return false, err
	} else if n == 0 {
		return false, b.same(ctx, tx, batch, sums, rejections)
	}
	if err := b.insert(ctx, tx, "@sums", 7, sumRows(batch.Name, sums)); err != nil {
		return false, err
	}
	if err := b.insert(ctx, tx, "@rejections", 6, rejectionRows(batch.Name, rejections)); err != nil {
		return false, err
	}
	if batch.Reported.IsZero() {
		if _, err := tx.ExecContext(ctx, b.dialect.sql(setReported), stamp(time.Now()), batch.Name); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(); err != nil {
		return false, err
	}
	return true, nil
}

const (
	insertBatch = "INSERT INTO @batches (name, file, records, billed, rejected, items, handed_over, reported) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
	setReported = "UPDATE @batches SET reported = ? WHERE name = ?"
)

// insertedAtOnce is how many rows a statement inserts. PostgreSQL takes 65,535 parameters, SQLite 32,766.
const insertedAtOnce = 500

// insert inserts rows of a number of columns, many with each statement.
func (b *Books) insert(ctx context.Context, tx *sql.Tx, table string, columns int, rows iter.Seq[[]any]) error {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	statement := func(rows int) string {
		return b.dialect.sql("INSERT INTO " + table + " VALUES " + row + strings.Repeat(", "+row, rows-1))
	}
	var full *sql.Stmt // of insertedAtOnce rows
	var values []any
	for row := range rows {
		if values = append(values, row...); len(values) < insertedAtOnce*columns {
			continue
		}
		if full == nil {
			var err error
			if full, err = tx.PrepareContext(ctx, statement(insertedAtOnce)); err != nil {
				return err
			}
			defer func() { _ = full.Close() }()
		}
		if _, err := full.ExecContext(ctx, values...); err != nil {
			return err
		}
		values = values[:0]
	}
	if len(values) == 0 {
		return nil
	}
	_, err := tx.ExecContext(ctx, statement(len(values)/columns), values...)
	return err
}

func sumRows(batch string, sums *totals.Totals) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for key, sum := range sums.All() {
			if !yield([]any{batch, key.Account, key.Tariff, key.Currency, sum.Records, sum.Quantity.String(), sum.Amount.String()}) {
				return
			}
		}
	}
}

func rejectionRows(batch string, rejections []records.Rejection) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for n, r := range rejections {
			if !yield([]any{batch, n + 1, madeStorable(r.File), r.Line, madeStorable(r.ID), madeStorable(r.Reason)}) {
				return
			}
		}
	}
}
