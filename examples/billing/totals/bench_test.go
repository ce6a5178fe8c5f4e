package totals_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

// benchRecords are the records of a work item.
const benchRecords = 1000

// charged is a record with its key and its amount.
type charged struct {
	key              totals.Key
	quantity, amount decimal.Decimal
}

func chargedRecords(tb testing.TB, seed uint64, n int) []charged {
	tb.Helper()
	var all []charged
	for r := range records.Generate(seed, n, 1) {
		currency, amount, err := records.BuiltInTariffs().Charge(&r)
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, charged{totals.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}, r.Quantity, amount})
	}
	return all
}

func sumOf(all []charged) *totals.Totals {
	t := new(totals.Totals)
	for _, c := range all {
		t.Add(c.key, c.quantity, c.amount)
	}
	return t
}

func perSecond(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)*benchRecords/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkAdd(b *testing.B) {
	all := chargedRecords(b, 1, benchRecords)
	b.ReportAllocs()
	for b.Loop() {
		sumOf(all)
	}
	perSecond(b)
}

// BenchmarkMerge merges the parts of a batch of 10,000 records.
func BenchmarkMerge(b *testing.B) {
	var parts []*totals.Totals
	for part := range slices.Chunk(chargedRecords(b, 1, 10*benchRecords), benchRecords) {
		parts = append(parts, sumOf(part))
	}
	b.ReportAllocs()
	for b.Loop() {
		whole := new(totals.Totals)
		for _, part := range parts {
			whole.Merge(part)
		}
	}
	b.ReportMetric(10*float64(b.N)*benchRecords/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkMarshal(b *testing.B) {
	t := sumOf(chargedRecords(b, 1, benchRecords))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := json.Marshal(t); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

func BenchmarkUnmarshal(b *testing.B) {
	text, err := json.Marshal(sumOf(chargedRecords(b, 1, benchRecords)))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := json.Unmarshal(text, new(totals.Totals)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(text)), "bytes")
	perSecond(b)
}
