package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFunctionsCanReadTheOutputAndThePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := localqueue.New(nil).Account("test")
		var out bytes.Buffer
		if err := run(t.Context(), account, &out); err != nil {
			t.Fatal(err)
		}
		// Base64 of "not an order", {"ID":"8"} and {"Order":"7"}, without envelopes and records.
		want := []string{"One order is shipped and two are poison, all in Base64 without envelopes, as Functions reads them.\n",
			"orders-poison bm90IGFuIG9yZGVy\n", "orders-poison eyJJRCI6IjgifQ==\n", "shipped eyJPcmRlciI6IjcifQ==\n"}
		if got := slices.Sorted(strings.Lines(out.String())); !slices.Equal(got, want) { // queues do not preserve order
			t.Errorf("got %q, want %q", got, want)
		}
		orders, err := account.Open("orders")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := orders.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("got %d orders left, error %v; want 0", p.Depth, err)
		}
	})
}
