package report

import (
	"cmp"
	"slices"

	"github.com/shopspring/decimal"

	"github.com/millrace/millrace/examples/billing/books"
)

// Largest are the largest sums of several, and how many others there are.
type Largest struct {
	Sums        []books.Total   // the largest first
	Others      int64           // that are not among Sums
	OthersSum   decimal.Decimal // of their amounts
	OthersCount int64           // of their records
}

// add adds a sum and keeps at most a number of them.
func (l *Largest) add(t books.Total, keep int) {
	at, _ := slices.BinarySearchFunc(l.Sums, t, func(a, b books.Total) int {
		return cmp.Or(b.Amount.Cmp(a.Amount), cmp.Compare(a.Account, b.Account), cmp.Compare(a.Tariff, b.Tariff))
	})
	l.Sums = slices.Insert(l.Sums, at, t)
	if len(l.Sums) > keep {
		least := l.Sums[keep]
		l.Sums = l.Sums[:keep]
		l.Others++
		l.OthersSum = l.OthersSum.Add(least.Amount)
		l.OthersCount += least.Records
	}
}
