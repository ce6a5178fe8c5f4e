package listener

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// A queue that is created and still missing is created again after the idle wait, not in a loop,
// and again when it is dropped later.
func TestAQueueThatStaysMissingIsNotCreatedInALoop(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" {
				return &queue.Error{Op: op, Queue: b.queue.Name(), Kind: queue.ErrQueueMissing, Status: 404}
			}
			if len(b.queue.sent("create")) > 1000 { // or the bubble would never end
				time.Sleep(time.Hour)
			}
			return act()
		}
		o := options()
		o.Create = true
		o.Fetch.Idle.Min, o.Fetch.Idle.Max = 10*time.Second, 10*time.Second
		b.run(New(b.queue, nothing, o))
		advance(5 * time.Minute)
		if n := len(b.queue.sent("create")); n < 27 || n > 31 {
			t.Errorf("it was created %d times in 300 s of waits of 10…11 s, want 27…31", n)
		}
		b.mustFinish()
	})
}

// A queue that is gone while its listener runs is created at the next poll, each time, and nobody
// is told that it was missing.
func TestAQueueThatIsGoneIsCreatedAtTheNextPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		var gone atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			switch {
			case op == "create":
				gone.Store(false)
				return nil
			case gone.Load():
				return &queue.Error{Op: op, Queue: b.queue.Name(), Kind: queue.ErrQueueMissing, Status: 404}
			}
			return act()
		}
		var told errorList
		o := options()
		o.Create, o.OnError = true, told.add
		b.run(New(b.queue, nothing, o))
		for n := 1; n <= 3; n++ {
			advance(time.Minute)
			gone.Store(true)
			advance(time.Minute)
			if got := len(b.queue.sent("create")); got != n {
				t.Errorf("gone %d times: created %d times", n, got)
			}
		}
		b.mustFinish()
		if len(told.list) != 0 {
			t.Errorf("told %v, want nothing", told.list)
		}
	})
}
