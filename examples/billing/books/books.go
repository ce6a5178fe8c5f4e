// Package books keeps the bills: sums by account and tariff, the rejected lines, and the id of every billed record. They
// are in an SQLite file or a PostgreSQL database, through database/sql.
//
// A batch is recorded under its name in one transaction, once. A record is billed under its id, once, in the
// first batch that has it.
package books

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace/examples/billing/records"
)

// Books are in a database. Get them from [Open] and close them. They are safe for concurrent use, by several processes
// too.
type Books struct {
	db      *sql.DB
	address string // for people, without a password
	lock    string // in PostgreSQL, a statement at the beginning of a transaction that writes
}

// Address returns where the books are, for people. It contains no password.
func (b *Books) Address() string { return b.address }

// Close closes the books. Recorded batches are safe without it.
func (b *Books) Close() error { return b.db.Close() }

// Batch is a batch as a whole.
type Batch struct {
	Name       string // unique
	File       string // of the records
	Records    int64  // its lines: billed and rejected
	Rejected   int64  // set by [Books.Record]
	Items      int64  // into how many work items it was split
	HandedOver time.Time
	Reported   time.Time // set by [Books.Record]; the books keep microseconds
}

// Billed returns how many of the records are billed.
func (b *Batch) Billed() int64 { return b.Records - b.Rejected }

// Latency returns the time from handing the batch over to its place in the books.
func (b *Batch) Latency() time.Duration { return b.Reported.Sub(b.HandedOver) }

// Charged is a record with its amount.
type Charged struct {
	records.Record
	Currency string          `json:"currency"`
	Amount   decimal.Decimal `json:"amount"`
}

// Part is some records of a batch.
type Part struct {
	Charged  []Charged           `json:"charged"`
	Rejected []records.Rejection `json:"rejected,omitempty"`
}

// Key identifies a sum.
type Key struct{ Account, Tariff, Currency string }

// Sum is the total of the records of one key.
type Sum struct {
	Records          int64
	Quantity, Amount decimal.Decimal
}

// Plus returns the total of the records of both.
func (s Sum) Plus(o Sum) Sum {
	return Sum{s.Records + o.Records, s.Quantity.Add(o.Quantity), s.Amount.Add(o.Amount)}
}

// ErrInvalid is the error of a batch that can never be recorded as it is.
var ErrInvalid = errors.New("the batch is invalid")

// Record records a batch with its parts in one transaction, and returns whether this call did it: if a batch of this name
// is in the books, nothing changes. A record is rejected if its id was billed before. It completes b. After an error
// nothing of the batch is recorded, or all of it if only the answer was lost: record it again.
func (b *Books) Record(ctx context.Context, batch *Batch, parts iter.Seq2[*Part, error]) (first bool, err error) {
	err = b.write(ctx, func(tx *sql.Tx) error {
		first, err = b.record(ctx, tx, batch, parts)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("record batch %s in %s: %w", batch.Name, b.address, err)
	}
	return first, nil
}

func (b *Books) record(ctx context.Context, tx *sql.Tx, batch *Batch, parts iter.Seq2[*Part, error]) (bool, error) {
	var number, known int64
	const find = `SELECT COALESCE(MAX(number), 0) + 1, COUNT(CASE WHEN name = $1 THEN 1 END) FROM billing_batches`
	if err := tx.QueryRowContext(ctx, find, batch.Name).Scan(&number, &known); err != nil || known > 0 {
		return false, err
	}
	r := &recording{tx: tx, numbered: b.lock != "", batch: number, sums: make(map[Key]Sum)}
	for part, err := range parts {
		if err != nil {
			return false, err
		}
		r.rejected = append(r.rejected, part.Rejected...)
		for some := range slices.Chunk(part.Charged, rowsAtOnce) {
			if err := r.bill(ctx, some); err != nil {
				return false, err
			}
		}
	}
	batch.Rejected = int64(len(r.rejected))
	if got := r.billed + batch.Rejected; got != batch.Records {
		return false, fmt.Errorf("%w: its parts have %d records, its manifest %d", ErrInvalid, got, batch.Records)
	}
	if err := r.insert(ctx); err != nil {
		return false, err
	}
	batch.HandedOver, batch.Reported = batch.HandedOver.UTC(), time.Now().UTC().Truncate(time.Microsecond)
	_, err := tx.ExecContext(ctx, `INSERT INTO billing_batches VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, number, batch.Name, batch.File,
		batch.Records, batch.Rejected, batch.Items, batch.HandedOver.Format(stamp), batch.Reported.Format(stamp))
	return err == nil, err
}

type recording struct {
	tx       *sql.Tx
	numbered bool  // whether parameters are $1, $2 and not ?
	batch    int64 // its number
	billed   int64
	sums     map[Key]Sum
	rejected []records.Rejection
}

// rowsAtOnce is how many rows a statement inserts. PostgreSQL takes 65,535 parameters, SQLite 32,766.
const rowsAtOnce = 500

// bill adds up the records with new ids, and rejects the others.
func (r *recording) bill(ctx context.Context, some []Charged) error {
	args := make([]any, 0, 2*len(some))
	for i := range some {
		args = append(args, some[i].ID, r.batch)
	}
	rows, err := r.tx.QueryContext(ctx, `INSERT INTO billing_records VALUES `+r.places(len(some), 2)+` ON CONFLICT (id) DO NOTHING RETURNING id`, args...)
	if err != nil {
		return err
	}
	fresh := make(map[string]bool, len(some))
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return errors.Join(err, rows.Close())
		}
		fresh[id] = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for i := range some {
		c := &some[i]
		if fresh[c.ID] {
			delete(fresh, c.ID) // the same id may come again in this statement
			r.billed++
			key := Key{c.Account, c.Tariff, c.Currency}
			r.sums[key] = r.sums[key].Plus(Sum{1, c.Quantity, c.Amount})
			continue
		}
		reason, err := r.duplicate(ctx, c.ID)
		if err != nil {
			return err
		}
		r.rejected = append(r.rejected, c.Reject(reason))
	}
	return nil
}

// duplicate returns the reason for the rejection of a record.
func (r *recording) duplicate(ctx context.Context, id string) (reason string, err error) {
	var batch int64
	var name sql.NullString
	const find = `SELECT r.batch, b.name FROM billing_records r LEFT JOIN billing_batches b ON b.number = r.batch WHERE r.id = $1`
	err = r.tx.QueryRowContext(ctx, find, id).Scan(&batch, &name)
	if batch == r.batch {
		return "the id " + id + " is on an earlier line of this batch", err
	}
	return "the id " + id + " is billed already, in batch " + name.String, err
}

// insert inserts the sums and the rejected lines.
func (r *recording) insert(ctx context.Context) error {
	var sums [][]any
	for _, key := range slices.SortedFunc(maps.Keys(r.sums), func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Tariff, b.Tariff), cmp.Compare(a.Currency, b.Currency))
	}) {
		sum := r.sums[key]
		sums = append(sums, []any{r.batch, key.Account, key.Tariff, key.Currency, sum.Records, sum.Quantity.String(), sum.Amount.String()})
	}
	slices.SortStableFunc(r.rejected, func(a, b records.Rejection) int { return cmp.Compare(a.Line, b.Line) })
	var rejected [][]any
	for _, one := range r.rejected {
		rejected = append(rejected, []any{r.batch, one.Line, one.ID, one.Reason, one.Text})
	}
	for table, rows := range map[string][][]any{"billing_sums": sums, "billing_rejections": rejected} {
		for some := range slices.Chunk(rows, rowsAtOnce) {
			if _, err := r.tx.ExecContext(ctx, `INSERT INTO `+table+` VALUES `+r.places(len(some), len(some[0])), slices.Concat(some...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// places returns the places of parameters for rows, such as ($1, $2), ($3, $4). SQLite takes quadratic time for numbers.
func (r *recording) places(rows, columns int) string {
	all := make([]string, rows)
	for row := range all {
		one := slices.Repeat([]string{"?"}, columns)
		for column := range one {
			if r.numbered {
				one[column] = "$" + strconv.Itoa(row*columns+column+1)
			}
		}
		all[row] = "(" + strings.Join(one, ", ") + ")"
	}
	return strings.Join(all, ", ")
}

// write runs a transaction that writes. Transactions that write wait for each other from their beginning.
func (b *Books) write(ctx context.Context, act func(*sql.Tx) error) error {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if b.lock != "" {
		if _, err := tx.ExecContext(ctx, b.lock); err != nil {
			return err
		}
	}
	if err := act(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// Snapshot shows the books at one moment. Its methods read while they are iterated, so that memory is constant. An
// iteration ends before the next begins.
type Snapshot struct{ tx *sql.Tx }

// Read calls read with a snapshot, which is invalid afterwards. Recording continues meanwhile.
func (b *Books) Read(ctx context.Context, read func(*Snapshot) error) error {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("read %s: %w", b.address, err)
	}
	defer func() { _ = tx.Rollback() }() // it has changed nothing
	return read(&Snapshot{tx})
}

// stamp is the text of times, in UTC. It sorts as the times do.
const stamp = "2006-01-02T15:04:05.000000Z"

// Batches returns the batches in the order of their names.
func (s *Snapshot) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	const find = `SELECT name, file, records, rejected, items, handed_over, reported FROM billing_batches ORDER BY name`
	return query(ctx, s.tx, find, func(scan func(...any) error) (b Batch, err error) {
		var handedOver, reported string
		if err = scan(&b.Name, &b.File, &b.Records, &b.Rejected, &b.Items, &handedOver, &reported); err != nil {
			return b, err
		}
		var err1, err2 error
		b.HandedOver, err1 = time.Parse(stamp, handedOver)
		b.Reported, err2 = time.Parse(stamp, reported)
		return b, errors.Join(err1, err2)
	})
}

// Rejection is a line that was rejected.
//
//nolint:errname // See [records.Rejection].
type Rejection struct {
	records.Rejection
	Batch    string
	BilledIn string // the batch that has the billed record of this id, or ""
}

// Rejections returns the rejected lines in the order of batches and lines.
func (s *Snapshot) Rejections(ctx context.Context) iter.Seq2[Rejection, error] {
	const find = `SELECT b.name, b.file, r.line, r.id, r.reason, r.text, COALESCE(i.name, '') FROM billing_rejections r
		JOIN billing_batches b ON b.number = r.batch
		LEFT JOIN billing_records d ON d.id = r.id LEFT JOIN billing_batches i ON i.number = d.batch ORDER BY b.name, r.line`
	return query(ctx, s.tx, find, func(scan func(...any) error) (r Rejection, err error) {
		err = scan(&r.Batch, &r.File, &r.Line, &r.ID, &r.Reason, &r.Text, &r.BilledIn)
		return r, err
	})
}

// Total is a sum over all batches.
type Total struct {
	Key
	Sum
}

// Totals returns the sums in the order of account, tariff and currency.
func (s *Snapshot) Totals(ctx context.Context) iter.Seq2[Total, error] {
	const find = `SELECT account, tariff, currency, records, quantity, amount FROM billing_sums ORDER BY account, tariff, currency`
	rows := query(ctx, s.tx, find, func(scan func(...any) error) (t Total, err error) {
		err = scan(&t.Account, &t.Tariff, &t.Currency, &t.Records, &t.Quantity, &t.Amount)
		return t, err
	})
	return func(yield func(Total, error) bool) {
		var sum Total // of batches that follow each other
		for row, err := range rows {
			if err != nil {
				yield(Total{}, err)
				return
			}
			if row.Key == sum.Key {
				sum.Sum = sum.Plus(row.Sum)
				continue
			}
			if sum.Records > 0 && !yield(sum, nil) {
				return
			}
			sum = row
		}
		if sum.Records > 0 {
			yield(sum, nil)
		}
	}
}

func query[R any](ctx context.Context, tx *sql.Tx, statement string, row func(scan func(...any) error) (R, error)) iter.Seq2[R, error] {
	return func(yield func(R, error) bool) {
		var none R
		rows, err := tx.QueryContext(ctx, statement)
		if err != nil {
			yield(none, fmt.Errorf("read the books: %w", err))
			return
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			one, err := row(rows.Scan)
			if err != nil {
				yield(none, fmt.Errorf("read the books: %w", err))
				return
			}
			if !yield(one, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, fmt.Errorf("read the books: %w", err))
		}
	}
}
