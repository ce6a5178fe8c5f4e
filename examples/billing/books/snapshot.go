package books

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/shopspring/decimal"
)

// Snapshot shows the books at one moment, whatever is recorded meanwhile. Get one from Read. Its
// methods read from the database while they are iterated, so that memory is flat. They are for one
// goroutine, one after the other: an iteration ends before the next begins. An error ends the iteration.
type Snapshot struct {
	tx      *sql.Tx
	dialect *dialect
}

// Read calls read with a snapshot, which is of no use afterwards. It returns the error of read as it
// is. Writers wait for no reader; but as long as read runs, an SQLite file keeps what was
// recorded since in its write-ahead log.
func (b *Books) Read(ctx context.Context, read func(*Snapshot) error) error {
	tx, err := b.db.BeginTx(ctx, &b.dialect.reading)
	if err != nil {
		return b.dialect.explain("reading the billing books", err)
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	return read(&Snapshot{tx, &b.dialect})
}

// Batches returns the batches, ordered by name.
func (s *Snapshot) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	const statement = "SELECT name, file, records, rejected, items, handed_over, reported FROM @batches ORDER BY name"
	return query(ctx, s, statement, func(rows *sql.Rows) (b Batch, err error) {
		err = rows.Scan(&b.Name, &b.File, &b.Records, &b.Rejected, &b.Items, stamped{&b.HandedOver}, stamped{&b.Reported})
		return b, err
	})
}

// Rejections returns the lines that were rejected, ordered by batch and then as they were recorded.
func (s *Snapshot) Rejections(ctx context.Context) iter.Seq2[Rejection, error] {
	const statement = "SELECT batch, file, line, id, reason FROM @rejections ORDER BY batch, number"
	return query(ctx, s, statement, func(rows *sql.Rows) (r Rejection, err error) {
		err = rows.Scan(&r.Batch, &r.Line.File, &r.Line.Line, &r.Line.ID, &r.Line.Reason)
		return r, err
	})
}

// Totals returns the sums by account, tariff and currency, ordered by these.
func (s *Snapshot) Totals(ctx context.Context) iter.Seq2[Total, error] {
	return s.totals(ctx, "account", "tariff", "currency")
}

// Accounts returns the sums by account and currency, ordered by these. They have no tariff and no
// quantity, because tariffs have different units.
func (s *Snapshot) Accounts(ctx context.Context) iter.Seq2[Total, error] {
	return s.totals(ctx, "account", "currency")
}

// Tariffs returns the sums by tariff and currency, ordered by these. They have no account.
func (s *Snapshot) Tariffs(ctx context.Context) iter.Seq2[Total, error] {
	return s.totals(ctx, "tariff", "currency")
}

// Currencies returns the sums by currency, ordered by it. They have no account, no tariff and no
// quantity.
func (s *Snapshot) Currencies(ctx context.Context) iter.Seq2[Total, error] {
	return s.totals(ctx, "currency")
}

// totals returns the sums by some columns of the key, ordered by them.
func (s *Snapshot) totals(ctx context.Context, by ...string) iter.Seq2[Total, error] {
	var columns []string
	for _, column := range []string{"account", "tariff", "currency"} {
		if !slices.Contains(by, column) {
			column = "''"
		}
		columns = append(columns, column)
	}
	byTariff := slices.Contains(by, "tariff")
	statement := "SELECT " + strings.Join(columns, ", ") + ", records, quantity, amount FROM @sums ORDER BY " + strings.Join(by, ", ")
	rows := query(ctx, s, statement, func(rows *sql.Rows) (t Total, err error) {
		err = rows.Scan(&t.Account, &t.Tariff, &t.Currency, &t.Records, &t.Quantity, &t.Amount)
		if !byTariff {
			t.Quantity = decimal.Zero
		}
		return t, err
	})
	return merged(rows)
}

// merged adds up rows of the same key that follow each other.
func merged(rows iter.Seq2[Total, error]) iter.Seq2[Total, error] {
	return func(yield func(Total, error) bool) {
		var sum Total
		begun := false
		for row, err := range rows {
			switch {
			case err != nil:
				yield(Total{}, err)
				return
			case begun && row.Key == sum.Key:
				sum.Sum = sum.Plus(row.Sum)
				continue
			case begun && !yield(sum, nil):
				return
			}
			sum, begun = row, true
		}
		if begun {
			yield(sum, nil)
		}
	}
}

// query returns the rows of a statement.
func query[R any](ctx context.Context, s *Snapshot, statement string, scan func(*sql.Rows) (R, error)) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		failed := func(err error) {
			var none R
			yield(none, s.dialect.explain("reading the billing books", err))
		}
		rows, err := s.tx.QueryContext(ctx, s.dialect.sql(statement))
		if err != nil {
			failed(err)
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			row, err := scan(rows)
			if err != nil {
				failed(err)
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			failed(err)
		}
	}
}
