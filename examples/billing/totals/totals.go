// Package totals sums money exactly, in any order.
package totals

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/shopspring/decimal"
)

// Key is what sums are kept for.
type Key struct {
	Account  string `json:"account"`
	Tariff   string `json:"tariff"`
	Currency string `json:"currency"`
}

// Sum is the total of the records of one key.
type Sum struct {
	Records  int64           `json:"records"`
	Quantity decimal.Decimal `json:"quantity"`
	Amount   decimal.Decimal `json:"amount"` // of amounts that were rounded for each record
}

// Plus returns the total of the records of both.
func (s Sum) Plus(other Sum) Sum {
	return Sum{
		Records:  s.Records + other.Records,
		Quantity: s.Quantity.Add(other.Quantity),
		Amount:   s.Amount.Add(other.Amount),
	}
}

// Totals are the sums by key. They do not depend on the order in which records were added or totals were merged. The zero value has none.
// Totals are not safe for concurrent use.
type Totals struct{ sums map[Key]Sum }

// Add counts one record with its quantity and its amount.
func (t *Totals) Add(key Key, quantity, amount decimal.Decimal) {
	t.add(key, Sum{Records: 1, Quantity: quantity, Amount: amount})
}

// Merge adds the totals of other, which stay as they are.
func (t *Totals) Merge(other *Totals) {
	for key, sum := range other.sums {
		t.add(key, sum)
	}
}

func (t *Totals) add(key Key, s Sum) {
	if t.sums == nil {
		t.sums = make(map[Key]Sum)
	}
	t.sums[key] = t.sums[key].Plus(s)
}

// All returns the sums in the order of account, tariff and currency.
func (t *Totals) All() iter.Seq2[Key, Sum] {
	return func(yield func(Key, Sum) bool) {
		for _, key := range slices.SortedFunc(maps.Keys(t.sums), compareKeys) {
			if !yield(key, t.sums[key]) {
				return
			}
		}
	}
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Tariff, b.Tariff), cmp.Compare(a.Currency, b.Currency))
}
