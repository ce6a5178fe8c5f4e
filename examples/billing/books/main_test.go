package books

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
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

// day is what the tests record.
type day struct {
	batch      Batch
	sums       totals.Totals
	rejections []records.Rejection
}

// made makes a batch: of each account one record of each of two tariffs, and two rejections.
func made(name string, accounts int) *day {
	d := &day{batch: Batch{Name: name, File: name + ".csv", Items: 3, HandedOver: start, Reported: start.Add(90 * time.Second)}}
	for n := range accounts {
		account := fmt.Sprintf("account-%05d", n)
		d.add(account, "water", "EUR", "2.5", "0.10")
		d.add(account, "power", "KWD", "0.000000001", "99999999999999999999.999")
	}
	d.reject(7, "the quantity is negative")
	d.reject(9, "the tariff is not known")
	return d
}

func (d *day) add(account, tariff, currency, quantity, amount string) {
	d.sums.Add(totals.Key{Account: account, Tariff: tariff, Currency: currency}, decimal.RequireFromString(quantity), decimal.RequireFromString(amount))
	d.batch.Records++
}

func (d *day) reject(line int, reason string) {
	d.rejections = append(d.rejections, records.Rejection{File: d.batch.File, Line: line, ID: fmt.Sprint("id-", line), Reason: reason})
	d.batch.Records++
}

func (d *day) record(ctx context.Context, b *Books) (bool, error) {
	return b.Record(ctx, &d.batch, &d.sums, d.rejections)
}

func recorded(t *testing.T, b *Books, d *day) {
	t.Helper()
	if first, err := d.record(t.Context(), b); err != nil || !first {
		t.Fatalf("recording %s: got first %v and error %v, want the first", d.batch.Name, first, err)
	}
}

// content is all that the books have.
type content struct {
	batches                               []Batch
	rejections                            []Rejection
	totals, accounts, tariffs, currencies []string
}

func read(t *testing.T, b *Books) (c content) {
	t.Helper()
	ctx := t.Context()
	err := b.Read(ctx, func(s *Snapshot) error {
		for batch, err := range s.Batches(ctx) {
			if err != nil {
				return err
			}
			c.batches = append(c.batches, batch)
		}
		for r, err := range s.Rejections(ctx) {
			if err != nil {
				return err
			}
			c.rejections = append(c.rejections, r)
		}
		for _, one := range []struct {
			into *[]string
			from func(context.Context) func(func(Total, error) bool)
		}{
			{&c.totals, func(ctx context.Context) func(func(Total, error) bool) { return s.Totals(ctx) }},
			{&c.accounts, func(ctx context.Context) func(func(Total, error) bool) { return s.Accounts(ctx) }},
			{&c.tariffs, func(ctx context.Context) func(func(Total, error) bool) { return s.Tariffs(ctx) }},
			{&c.currencies, func(ctx context.Context) func(func(Total, error) bool) { return s.Currencies(ctx) }},
		} {
			for sum, err := range one.from(ctx) {
				if err != nil {
					return err
				}
				*one.into = append(*one.into, line(sum))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func line(t Total) string {
	return fmt.Sprintf("%s %s %s: %d, %s, %s", t.Account, t.Tariff, t.Currency, t.Records, t.Quantity, t.Amount)
}
