package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
)

// The error of a limit is found through wrappers and by errors.Is, is no failure of the service, and says what was
// held back.
func TestALimitedErrorSaysHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := must(limits.NewProcess(&limits.ProcessOptions{Requests: 0.5, Burst: 2 * time.Second}))
		jobs := limit.Wrap(must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "jobs"}))
		if err := jobs.Create(t.Context(), nil); err != nil { // the one request of the burst
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		_, err := jobs.Dequeue(t.Context(), 1, time.Minute)
		got := (*queue.Error)(nil)
		if outer := fmt.Errorf("outer: %w", err); !errors.Is(outer, queue.ErrLimited) || !errors.As(outer, &got) || queue.Transient(outer) {
			t.Fatalf("%v: want one that is limited, and not transient", err)
		}
		const want = "dequeue on acme/jobs: limited: 0.5 requests a second; nothing was sent: try again in 1.5s"
		if err.Error() != want || got.RetryAfter != 1500*time.Millisecond || got.Detail != "0.5 requests a second" {
			t.Errorf("got error %q of %+v, want %q", err, got, want)
		}
	})
}
