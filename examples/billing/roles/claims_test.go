package roles

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/wakeup"
)

// An item that compression cannot make small enough goes through the claims.
func TestItemsThatAreTooLargeForAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := generate(1, 5000)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range all {
			all[i].ID = fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())
		}
		bus := new(wakeup.Bus) // two weeks of polls would take long
		p := w.start(Options{Roles: All, Group: shipping.MaxPieceRecords, Source: bus, Publisher: bus}, nil)
		w.ship(p.System, day1, all, 3500)
		w.settle()
		if n := w.claims(); n != 2 {
			t.Errorf("claims: got %d, want 2", n)
		}
		// What is left of them is deleted with a later batch.
		time.Sleep(15 * 24 * time.Hour)
		w.ship(p.System, day2, generate(2, 10), 10)
		w.settle()
		p.end()
		w.check()
		if n := w.claims(); n != 0 {
			t.Errorf("claims after two weeks: got %d, want none", n)
		}
	})
}

// claims returns how many items are in the store, or were lately.
func (w *world) claims() (n int) {
	for _, err := range w.store.List(context.Background(), "billing-claims", "") {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}
