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

func TestFunctionsReadTheAnswersAndThePoison(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := localqueue.New(nil).Account("test")
		var out bytes.Buffer
		if err := run(t.Context(), account, &out); err != nil {
			t.Fatal(err)
		}
		// Base64 of {"Order":"7"}, of "no order at all", and of {"ID":"8"}, in no envelope or record.
		want := []string{"orders-poison bm8gb3JkZXIgYXQgYWxs\n", "orders-poison eyJJRCI6IjgifQ==\n", "shipped eyJPcmRlciI6IjcifQ==\n"}
		if got := slices.Sorted(strings.Lines(out.String())); !slices.Equal(got, want) { // no queue promises an order
			t.Errorf("got %q, want %q", got, want)
		}
		orders, err := account.Open("orders")
		if err != nil {
			t.Fatal(err)
		}
		if p, err := orders.Properties(t.Context()); err != nil || p.Depth != 0 {
			t.Errorf("%d orders are left, %v", p.Depth, err)
		}
	})
}
