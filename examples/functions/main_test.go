package main

import (
	"bytes"
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
		want := "shipped eyJPcmRlciI6IjcifQ==\norders-poison bm8gb3JkZXIgYXQgYWxs\norders-poison eyJJRCI6IjgifQ==\n"
		if out.String() != want {
			t.Errorf("got %q, want %q", &out, want)
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
