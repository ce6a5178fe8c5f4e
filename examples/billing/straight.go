package main

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/totals"
)

// straight adds up what records cost, in one loop, without any of the roles.
func straight(all iter.Seq[records.Record], tariffs *records.Tariffs) (*totals.Totals, error) {
	sums := &totals.Totals{}
	for r := range all {
		currency, amount, err := tariffs.Charge(&r)
		if err != nil {
			return nil, err
		}
		sums.Add(totals.Key{Account: r.Account, Tariff: r.Tariff, Currency: currency}, r.Quantity, amount)
	}
	return sums, nil
}

// compareTotals returns how many sums the books have, and an error if they are not these.
func compareTotals(ctx context.Context, kept *books.Books, want *totals.Totals) (n int, err error) {
	err = kept.Read(ctx, func(s *books.Snapshot) error {
		next, stop := iter.Pull2(s.Totals(ctx))
		defer stop()
		for key, sum := range want.All() {
			got, err, more := next()
			switch {
			case err != nil:
				return err
			case !more:
				return fmt.Errorf("the books lack %v", key)
			case got.Account != key.Account || got.Tariff != key.Tariff || got.Currency != key.Currency,
				got.Records != sum.Records, !got.Quantity.Equal(sum.Quantity), !got.Amount.Equal(sum.Amount):
				return fmt.Errorf("the books have %+v, a straight computation %v: %+v", got, key, sum)
			}
			n++
		}
		if got, _, more := next(); more {
			return fmt.Errorf("the books have %+v, a straight computation does not", got)
		}
		return nil
	})
	if err == nil && n == 0 {
		err = errors.New("there is nothing in the books")
	}
	return n, err
}
