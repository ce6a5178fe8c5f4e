package main

import (
	"bytes"
	"log"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheHooksReplaceTheDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		begin := time.Now()
		if err := run(t.Context(), log.New(&out, "", 0)); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(strings.Lines(out.String())) // handlers run concurrently
		want := []string{
			"attempt 1 retried: no paper\n",
			"attempt 1 retried: the printer is busy\n",
			"pages: loops=1\n",
			"pages: loops=2\n",
			"printed 100 pages in 1.02s: the hooks chose the retry delays, the waits, and the loops, and saw every event\n",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		// The curve delays the second attempt by about a second.
		if took := time.Since(begin); took < 900*time.Millisecond || took > 3*time.Second {
			t.Errorf("got a duration of %v; want between %v and %v", took, 900*time.Millisecond, 3*time.Second)
		}
	})
}
