package main

import (
	"bytes"
	"log"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestInterceptorsSeeEveryJobOfEveryType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), log.New(&out, "", 0)); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(strings.Lines(out.String())) // handlers run concurrently
		want := []string{
			"emails, attempt 1, 4 left: deleted, <nil>\n",
			"emails, attempt 1, 4 left: snoozed, <nil>\n",
			"orders, attempt 1, 1 left: poisoned, empty order\n",
			"orders, attempt 1, 1 left: retried, the bank does not respond\n",
			"orders, attempt 2, 0 left: deleted, <nil>\n",
			"sent to emails: <nil>\n",
			"sent to orders: <nil>\n",
			"sent to orders: <nil>\n",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
