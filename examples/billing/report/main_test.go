package report

import (
	"context"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shopspring/decimal"
	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, time.November, 21, 6, 30, 0, 0, time.UTC)

func newBooks(t *testing.T) *books.Books {
	t.Helper()
	b, err := books.Open(t.Context(), filepath.Join(t.TempDir(), "books.db"))
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

// entry is one sum of a batch.
type entry struct {
	account, tariff, currency, quantity, amount string
	records                                     int
}

// record records a batch that took some time.
func record(t *testing.T, b *books.Books, name string, begin time.Time, took time.Duration, rejections []records.Rejection, entries ...entry) {
	t.Helper()
	var sums totals.Totals
	n := len(rejections)
	for _, e := range entries {
		key := totals.Key{Account: e.account, Tariff: e.tariff, Currency: e.currency}
		for range max(1, e.records) - 1 { // the last has it all
			sums.Add(key, decimal.Zero, decimal.Zero)
		}
		sums.Add(key, decimal.RequireFromString(e.quantity), decimal.RequireFromString(e.amount))
		n += max(1, e.records)
	}
	batch := &books.Batch{Name: name, File: name + ".csv", Records: int64(n), Items: 1, HandedOver: begin, Reported: begin.Add(took)}
	if first, err := b.Record(context.Background(), batch, &sums, rejections); err != nil || !first {
		t.Fatalf("recording %s: got first %v and error %v", name, first, err)
	}
}

const hostile = "<script>alert(\"x\")</script>&'\"> \u202e"

// aMonth records 30 batches that look real, with some names that are not nice.
func aMonth(t *testing.T, b *books.Books) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	tariffs := []struct{ name, currency string }{
		{"electricity-day", "EUR"}, {"electricity-night", "EUR"}, {"gas", "EUR"}, {"water", "EUR"}, {"fibre", "USD"}, {"mobile-data", "USD"},
		{"voice", "USD"}, {"parking", "JPY"}, {"roaming-data-in-very-distant-countries-and-on-board-of-aircraft", "JPY"},
	}
	for day := range 30 {
		var entries []entry
		for n := range 40 {
			for at, tariff := range tariffs {
				account := fmt.Sprintf("AC-%06d", 100000+n*7919)
				switch n {
				case 3:
					account = "<script>alert(1)</script>"
				case 4:
					account = "Wolfeschlegelsteinhausenbergerdorff-Hohenzollern-Sigmaringen-2026"
				}
				cents := decimal.New(int64((1+r.IntN(90000))*(40-n)/(at+1)), -2)
				if tariff.currency == "JPY" {
					cents = cents.Round(0)
				}
				entries = append(entries, entry{account, tariff.name, tariff.currency, fmt.Sprintf("%d.%03d", r.IntN(9000), r.IntN(1000)), cents.String(), 27})
			}
		}
		var rejections []records.Rejection
		if day%4 == 0 {
			rejections = append(rejections, records.Rejection{File: "usage-2026-11.csv", Line: 100*day + 7, ID: fmt.Sprintf("u-%08d", day*331), Reason: `the quantity "-3.5" is negative`},
				records.Rejection{File: "usage-2026-11.csv", Line: 100*day + 9, ID: fmt.Sprintf("u-%08d", day*337), Reason: `the tariff "<b>gaz</b>" is not known; is it "gas"?`})
		}
		name := start.AddDate(0, 0, day-30).Format(time.DateOnly)
		record(t, b, name, start.Add(time.Duration(day)*300*time.Millisecond), time.Duration(900+r.IntN(2800))*time.Millisecond, rejections, entries...)
	}
}

// sheetOf reads a CSV file of a report.
func sheetOf(t *testing.T, folder, name string) [][]string {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rows
}
