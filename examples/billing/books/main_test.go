package books

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/internal/postgrestest"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(recorderVariable); address != "" {
		recorder(address)
		return
	}
	code := m.Run()
	postgrestest.Stop()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

var start = time.Date(2026, time.November, 21, 6, 30, 0, 123456000, time.UTC)

// onBoth runs a test with books in SQLite and in PostgreSQL. It gets the address of new ones.
func onBoth(t *testing.T, test func(t *testing.T, address string)) {
	t.Run("SQLite", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "books.db")) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgrestest.Database(t)) })
}

func opened(t *testing.T, address string) *Books {
	t.Helper()
	b, err := Open(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// day is a batch that the tests record.
type day struct {
	batch Batch
	part  Part
}

// made makes a batch: of each account one record of each of two tariffs, and two rejections.
func made(name string, accounts int) *day {
	d := &day{batch: Batch{Name: name, File: name + ".csv", Items: 3, HandedOver: start}}
	for n := range accounts {
		account := fmt.Sprintf("account-%05d", n)
		d.add(account, "water", "EUR", "2.5", "0.10")
		d.add(account, "power", "KWD", "0.000000001", "99999999999999999999.999")
	}
	d.reject("the quantity is negative")
	d.reject("the tariff is not known")
	return d
}

// id returns the id of the next line.
func (d *day) id() string { return fmt.Sprint(d.batch.Name, "/", d.batch.Records) }

func (d *day) add(account, tariff, currency, quantity, amount string) {
	r := records.Record{Line: int(d.batch.Records) + 2, ID: d.id(), Time: start, Account: account, Tariff: tariff, Quantity: decimal.RequireFromString(quantity)}
	d.part.Charged = append(d.part.Charged, Charged{r, currency, decimal.RequireFromString(amount)})
	d.batch.Records++
}

func (d *day) reject(reason string) {
	d.part.Rejected = append(d.part.Rejected, records.Rejection{Line: int(d.batch.Records) + 2, ID: d.id(), Reason: reason, Text: "text"})
	d.batch.Records++
}

// record records the batch in parts of a hundred records.
func (d *day) record(ctx context.Context, b *Books) (bool, error) {
	return b.Record(ctx, &d.batch, func(yield func(*Part, error) bool) {
		for some := range slices.Chunk(d.part.Charged, 100) {
			if !yield(&Part{Charged: some}, nil) {
				return
			}
		}
		yield(&Part{Rejected: d.part.Rejected}, nil)
	})
}

func recorded(t *testing.T, b *Books, d *day) {
	t.Helper()
	if first, err := d.record(t.Context(), b); err != nil || !first {
		t.Fatalf("recording %s: got first %v and error %v, want the first", d.batch.Name, first, err)
	}
}

// content is everything in the books.
type content struct {
	batches    []Batch
	rejections []Rejection
	totals     []string
}

func read(t *testing.T, b *Books) (c content) {
	t.Helper()
	if err := b.Read(t.Context(), func(s *Snapshot) (err error) { c, err = contentOf(t, s); return err }); err != nil {
		t.Fatal(err)
	}
	return c
}

func contentOf(t *testing.T, s *Snapshot) (c content, err error) {
	for batch, err := range s.Batches(t.Context()) {
		if err != nil {
			return c, err
		}
		c.batches = append(c.batches, batch)
	}
	for r, err := range s.Rejections(t.Context()) {
		if err != nil {
			return c, err
		}
		c.rejections = append(c.rejections, r)
	}
	for sum, err := range s.Totals(t.Context()) {
		if err != nil {
			return c, err
		}
		c.totals = append(c.totals, fmt.Sprintf("%s %s %s: %d, %s, %s", sum.Account, sum.Tariff, sum.Currency, sum.Records, sum.Quantity, sum.Amount))
	}
	return c, nil
}
