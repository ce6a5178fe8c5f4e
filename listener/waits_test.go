package listener

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// After an error nobody polls sooner than after an empty poll, whatever the waits after errors are;
// and an idle wait of hours does not keep a listener from noticing that the service is back.
func TestTheWaitAfterAnErrorIsNoShorterThanAnIdleWait(t *testing.T) {
	for name, c := range map[string]struct{ min, least, most time.Duration }{
		"brief":   {10 * time.Millisecond, 50 * time.Millisecond, time.Second},
		"longer":  {8 * time.Second, 4 * time.Second, 20 * time.Second},
		"an hour": {time.Hour, 15 * time.Second, 45 * time.Second},
	} {
		bubble(t, func(b *bundle) {
			b.queue.intercept = func(op string, act func() error) error {
				if op == "dequeue" && len(b.queue.sent(op)) == 0 {
					return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 503}
				}
				return act()
			}
			o := options()
			o.Fetch.Idle.Min, o.Fetch.Idle.Max = c.min, 2*time.Hour
			b.run(New(b.queue, nothing, o))
			advance(time.Minute)
			polls := b.queue.sent("dequeue")
			if len(polls) < 2 {
				t.Errorf("%s: %d polls in a minute, want another one after the error", name, len(polls))
			} else if wait := polls[1].at.Sub(polls[0].at); wait < c.least || wait > c.most {
				t.Errorf("%s: waited %v after the error, want %v…%v", name, wait, c.least, c.most)
			}
			b.mustFinish()
		})
	}
}

// A handler that ignores its time-out is reported that long after it, also if its lease expires in
// between: the later cause does not postpone the report.
func TestALaterCauseDoesNotPostponeTheReportOfAStuckHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 503}
			}
			return act()
		}
		release := make(chan struct{})
		var told errorList
		o := fixed(30 * time.Second)
		o.Timeout, o.Lease.StuckAfter, o.OnError = 10*time.Second, time.Minute, told.add
		b.run(New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, o))
		stuck := func() (found *StuckError) {
			told.mu.Lock()
			defer told.mu.Unlock()
			for _, err := range told.list {
				errors.As(err, &found)
			}
			return found
		}
		advance(69 * time.Second)
		if stuck() != nil {
			t.Error("reported before its time")
		}
		advance(2 * time.Second) // 70 s after its begin
		if e := stuck(); e == nil || !errors.Is(e.Cause, ErrTimeout) {
			t.Errorf("a minute after the time-out: got the report %v, want one with the time-out as its cause", e)
		}
		close(release)
		advance(time.Minute)
		b.mustFinish()
	})
}

// Messages that are being settled are in the depth and are no backlog.
func TestADepthOfMessagesBeingSettledCausesNoPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" && time.Since(b.begin) < 20*time.Minute {
				time.Sleep(30 * time.Minute)
			}
			return act()
		}
		o := fixed(3 * time.Hour) // so that none is delivered again
		o.Concurrency, o.Fetch.Loops.Min = 640, 2
		o.Fetch.QueueWorkDetected = func(Load) int { // more only once all are running or being settled
			if time.Since(b.begin) < 100*time.Second {
				return 2
			}
			return 20
		}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if m.Body.N < 2 {
				return sleep(ctx, time.Minute)
			}
			return sleep(ctx, time.Hour)
		}, o)
		b.put(64)
		b.run(l)
		advance(70 * time.Second)
		b.putText(`{"N":100}`)
		b.putText(`{"N":100}`)
		advance(50 * time.Second)
		if st := l.State(); st.Running != 64 || st.Settling != 2 || st.Loops != 2 || b.depth(b.queue.Queue) != 66 {
			b.Errorf("got state %+v, %d in the queue; want Running 64, Settling 2, Loops 2, 66", st, b.depth(b.queue.Queue))
		}
		reads, polls := len(b.queue.sent("properties")), len(b.queue.sent("dequeue"))
		advance(10 * time.Minute)
		reads, polls = len(b.queue.sent("properties"))-reads, len(b.queue.sent("dequeue"))-polls
		if reads < 19 || reads > 20 || polls > 0 {
			t.Errorf("got %d reads of the depth and %d polls in ten minutes, want 20 and 0", reads, polls)
		}
		advance(2 * time.Hour)
		b.mustFinish()
	})
}

// A request that hangs is cancelled when SettleTimeout is over, and not a second later.
func TestARequestThatHangsEndsWithTheSettleTimeout(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Grace, o.Lease.SettleTimeout = 5*time.Second, 5*time.Second
		l := New(&hangingDelete{Queue: b.queue}, nothing, o)
		b.run(l)
		advance(time.Second)
		stopped := time.Now()
		b.mustFinish()
		if took := time.Since(stopped); took != 10*time.Second {
			t.Errorf("the drain took %v, want Grace and SettleTimeout: 10 s", took)
		}
		if st := l.State(); st.Outcomes[Unsettled] != 1 {
			t.Errorf("got state %+v, want Unsettled 1", st)
		}
	})
}

// A new minimum of loops above the maximum in force raises it; one below does not lower it.
func TestAMinOfLoopsRaisesTheirMax(t *testing.T) {
	for _, c := range []struct{ before, change, want Loops }{
		{Loops{Max: 2}, Loops{Min: 5}, Loops{Min: 5, Max: 5}},
		{Loops{Max: 8}, Loops{Min: 5}, Loops{Min: 5, Max: 8}},
		{Loops{Min: 1}, Loops{Min: 5}, Loops{Min: 5}},
		{Loops{Min: 5, Max: 8}, Loops{Max: 2}, Loops{Min: 5, Max: 2}},
		{Loops{Min: 5, Max: 8, Pause: time.Second}, Loops{Pause: -1}, Loops{Min: 5, Max: 8, Pause: -1}},
		{Loops{Min: 5, Max: 8, Pause: time.Second}, Loops{}, Loops{Min: 5, Max: 8, Pause: time.Second}},
	} {
		if got := c.before.changed(c.change); got != c.want {
			t.Errorf("%+v changed by %+v: got %+v, want %+v", c.before, c.change, got, c.want)
		}
	}
}
