package millracetest_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/queue/faultqueue"
)

// Messages hidden by a lost response are handled by a drain after their visibility has ended.
func TestDrainHandlesAllJobsOfAFaultyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, orders(300)...)
		faulty := must(faultqueue.New(q, &faultqueue.Options{
			Seed:  1,
			Every: faultqueue.Rates{Throttled: 0.1, Unavailable: 0.05, LostRequest: 0.05, LostResponse: 0.05},
		}))
		var handled atomic.Int64
		done := counts{}
		for range 20 {
			for outcome, n := range millracetest.Drain(t, faulty, func(context.Context, *listener.Message[Order]) error {
				handled.Add(1)
				return nil
			}, nil) {
				done[outcome] += n
			}
			time.Sleep(time.Minute)
		}
		millracetest.RequireEmpty(t, q)
		if handled.Load() < 300 || done[listener.Deleted] < 290 {
			t.Errorf("got %d runs for 300 jobs: %v; want at least 300 runs and 290 deleted", handled.Load(), done)
		}
	})
}
