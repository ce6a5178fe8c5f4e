package listener

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// fixed returns options whose visibility does not depend on handling times.
func fixed(d time.Duration) *Options[job] {
	o := options()
	o.Lease.Visibility = dispatcher.FixedVisibility(d)
	return o
}

// B-07, invariant 4: a handler may run for any time. Its lease is renewed at half time with the
// whole text, and no other worker gets the message.
func TestALongHandlerKeepsItsLease(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(40)
		var runs, cancelled atomic.Int64
		o := fixed(30 * time.Second)
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			runs.Add(1)
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
				cancelled.Add(1)
			}
			return nil
		}, o)
		b.run(l)
		other := 0
		for range 60 {
			advance(time.Minute)
			batch, err := b.queue.Queue.Dequeue(b.Context(), 32, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			other += len(batch)
		}
		advance(time.Minute)
		b.mustFinish()
		if runs.Load() != 40 || cancelled.Load() != 0 || other != 0 || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got %d runs, %d cancelled, %d taken by others, %d left; want 40, 0, 0, 0",
				runs.Load(), cancelled.Load(), other, b.depth(b.queue.Queue))
		}
		// An hour in steps of 15 to 18.75 s is 192 to 240 renewals each.
		if n := l.State().Renewed; n < 40*191 || n > 40*241 {
			t.Errorf("got %d renewals of 40 messages in an hour; want between %v and %v", n, 40*191, 40*241)
		}
	})
}

// A handler of at most half its visibility is never renewed.
func TestAShortHandlerIsNotRenewed(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(200)
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(14 * time.Second); return nil }, fixed(30*time.Second))
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if n := len(b.queue.sent("update")); n != 0 {
			t.Errorf("got %d renewals; want 0", n)
		}
		if l.State().Outcomes[Deleted] != 200 {
			t.Errorf("got state %+v; want Succeeded 200", l.State())
		}
	})
}

// V-05: the visibility is twice the 95th percentile of handling times, so that steady work
// needs no renewals after the first batches.
func TestVisibilityFollowsTheHandlingTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(4000)
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(40 * time.Second); return nil }, options())
		b.run(l)
		advance(2 * time.Hour)
		b.mustFinish()
		st := l.State()
		if st.Visibility != 80*time.Second || st.Outcomes[Deleted] != 4000 {
			t.Errorf("got state %+v, want Succeeded 4000, Visibility 80s", st)
		}
		if per := float64(st.Renewed) / 4000; per > 0.05 {
			t.Errorf("got %.3f renewals a message; want at most %v", per, 0.05)
		}
	})
}

// B-13: when the service says that the lease is lost, the handler's context ends with that
// cause and its result settles nothing.
func TestALostLeaseCancelsTheHandler(t *testing.T) {
	for _, result := range []error{nil, errors.New("failed")} {
		bubble(t, func(b *bundle) {
			b.put(1)
			var cause error
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				// Another client deletes the message with a receipt of its own.
				time.Sleep(time.Second)
				clearQueue(b)
				<-ctx.Done()
				cause = context.Cause(ctx)
				return result
			}, fixed(30*time.Second))
			b.run(l)
			advance(time.Minute)
			b.mustFinish()
			if !errors.Is(cause, dispatcher.ErrLeaseLost) {
				t.Errorf("cause: got %v, want dispatcher.ErrLeaseLost", cause)
			}
			if st := l.State(); st.Outcomes[Lost] != 1 || st.Outcomes[Deleted]+st.Outcomes[Retried] != 0 || len(b.queue.sent("delete")) != 0 {
				t.Errorf("got state %+v, want Lost 1 and nothing settled", st)
			}
		})
	}
}

// clearQueue deletes all messages, so that leases are lost.
func clearQueue(b *bundle) {
	m, ok := b.queue.Queue.(queue.Manager)
	if !ok || m.Clear(b.Context()) != nil {
		b.Error("the queue cannot be cleared")
	}
}

// B-10: when the service does not respond, the context ends by our own clock, a second before
// the lease can have ended. A handler that succeeds nevertheless tries one delete.
func TestAnExpiredLeaseCancelsTheHandlerInTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			}
			return act()
		}
		var cause error
		var ended time.Time
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			cause, ended = context.Cause(ctx), time.Now()
			return nil
		}, fixed(30*time.Second))
		b.run(l)
		advance(29*time.Second + 500*time.Millisecond)
		if !errors.Is(cause, dispatcher.ErrLeaseExpired) || ended.Sub(b.begin) != 29*time.Second {
			t.Errorf("cause: got %v after %v, want ErrLeaseExpired after 29 s", cause, ended.Sub(b.begin))
		}
		if st := l.State(); st.Outcomes[Deleted] != 1 || len(b.queue.sent("delete")) != 1 {
			t.Errorf("got state %+v, want Succeeded 1 with one delete", st)
		}
		if n := len(b.queue.sent("update")); n < 3 || n > 40 {
			t.Errorf("got %d attempts to renew; want between 3 and 40", n)
		}
		b.mustFinish()
	})
}

// When quick handlers shorten the visibility, a slow one among them keeps its longer lease.
func TestAShorterVisibilityLosesNoLease(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2000)
		o := options()
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if m.Body.N > 0 {
				time.Sleep(50 * time.Millisecond)
				return nil
			}
			select {
			case <-time.After(10 * time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, o)
		b.run(l)
		advance(20 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 2000 || st.Outcomes[Lost] != 0 || st.Visibility != 10*time.Second {
			t.Errorf("got state %+v; want Succeeded 2000, Lost 0, Visibility %v", st, 10*time.Second)
		}
	})
}

// A renewal that took effect although its response was lost leaves an old receipt: the lease is
// lost, and the message is delivered again.
func TestARenewalWhoseResponseIsLostEndsAsALostLease(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		dropped := false
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "update" && !dropped {
				dropped = true
				return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
			}
			return err
		}
		var causes []error
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			select {
			case <-ctx.Done():
				causes = append(causes, context.Cause(ctx))
				return ctx.Err()
			case <-time.After(25 * time.Second):
				return nil
			}
		}, fixed(30*time.Second))
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if len(causes) != 1 || !errors.Is(causes[0], dispatcher.ErrLeaseLost) {
			t.Errorf("causes: got %v, want one ErrLeaseLost", causes)
		}
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Lost] != 1 || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got state %+v; want Succeeded 1, Lost 1, depth 0", st)
		}
	})
}

// A settlement waits for the renewal in flight and uses its receipt: a slow renewal never
// causes a second delivery of a handled message.
func TestASettlementWaitsForTheRunningRenewal(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(50)
		b.queue.latency = 3 * time.Second
		var runs atomic.Int64
		l := New(b.queue, func(context.Context, *Message[job]) error {
			runs.Add(1)
			time.Sleep(16 * time.Second) // ends while the renewal is in flight
			return nil
		}, fixed(30*time.Second))
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		if st := l.State(); runs.Load() != 50 || st.Outcomes[Deleted] != 50 || st.Outcomes[Lost] != 0 || st.Renewed == 0 {
			t.Errorf("got %d runs, state %+v; want runs 50, Succeeded 50, Lost 0, Renewed above 0", runs.Load(), st)
		}
	})
}

// A lease is not renewed past the message's expiry, which the service would refuse; the handler
// is cancelled before that.
func TestALeaseIsNotRenewedPastTheMessagesLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		if _, err := b.queue.Queue.Enqueue(b.Context(), `{"N":1}`, &queue.EnqueueOptions{TTL: 100 * time.Second}); err != nil {
			t.Fatal(err)
		}
		var ended time.Duration
		o := fixed(30 * time.Second)
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			ended = time.Since(b.begin)
			return ctx.Err()
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if ended < 90*time.Second || ended > 100*time.Second {
			t.Errorf("the handler was cancelled after %v of 100 s; want between %v and %v", ended, 90*time.Second, 100*time.Second)
		}
		if l.State().Received > 1 && l.State().Outcomes[Poisoned] != 1 {
			t.Errorf("delivered again with no life left: got %+v, want Poisoned 1", l.State())
		}
		for _, c := range b.queue.sent("update") {
			if c.err != nil {
				t.Errorf("renewal: got error %v, want nil", c.err)
			}
		}
	})
}

// A handler's time-out ends its context with that cause and counts as a failure. If the handler
// then returns, its lease is not renewed.
func TestAHandlerTimeOutIsAFailure(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var causes []error
		o := fixed(30 * time.Second)
		o.Timeout = 20 * time.Second
		o.RetryDelay = func(int, error) time.Duration { return time.Second }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			return ctx.Err()
		}, o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		if len(causes) != 5 {
			t.Fatalf("got %d runs, want 5", len(causes))
		}
		for _, cause := range causes {
			if !errors.Is(cause, dispatcher.ErrTimeout) {
				t.Errorf("cause: got %v, want dispatcher.ErrTimeout", cause)
			}
		}
		if l.State().Renewed != 0 || l.State().Outcomes[Poisoned] != 1 {
			t.Errorf("got state %+v; want Renewed 0, Poisoned 1", l.State())
		}
	})
}

// B-01: a delete whose response was lost is retried, and "gone" then means success.
func TestADeleteOfUnknownOutcomeIsRetried(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		first := map[int]bool{}
		n := 0
		var mu sync.Mutex
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "delete" {
				mu.Lock()
				defer mu.Unlock()
				if n++; n <= 100 && !first[n] {
					return &queue.Error{Op: op, Kind: queue.ErrOutcomeUnknown}
				}
			}
			return err
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 100 || st.Outcomes[Lost] != 0 || st.Received != 100 {
			t.Errorf("got state %+v; want Succeeded 100, Lost 0, Received 100", st)
		}
	})
}

// Invariant 1: when the poison queue accepts nothing, the message is not lost: it is given back,
// and moved when the poison queue works again.
func TestAPoisonQueueThatFailsLosesNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("not a job")
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" && time.Since(b.begin) < 5*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(4 * time.Minute)
		if d := b.depth(b.queue.Queue); d != 1 {
			t.Errorf("got depth %d while the poison queue fails; want 1", d)
		}
		advance(time.Hour)
		b.mustFinish()
		if len(b.poisoned()) != 1 || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got %d in the poison queue, %d left; want poison messages 1, depth 0", len(b.poisoned()), b.depth(b.queue.Queue))
		}
	})
}

// A job whose last attempt failed, or that its handler rejects, is not handled again while it
// waits to be moved, or ever where poison is kept.
func TestAPoisonMessageIsNotHandledAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for name, c := range map[string]struct {
		result   error
		keep     bool
		wantRuns int
	}{
		"failed, no copy":   {errors.New("no"), false, 5},
		"rejected, no copy": {dispatcher.Poison(errors.New("no")), false, 1},
		"failed, kept":      {errors.New("no"), true, 5},
		"rejected, kept":    {dispatcher.Poison(errors.New("no")), true, 1},
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < 5*time.Hour {
					return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
				}
				return act()
			}
			runs := 0
			o := options()
			o.Poison.Keep = c.keep
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return c.result }, o)
			b.run(l)
			advance(4 * time.Hour)
			if d := b.depth(b.queue.Queue); runs != c.wantRuns || d != 1 {
				t.Errorf("%s: got %d runs and %d messages in the queue, want %d and 1", name, runs, d, c.wantRuns)
			}
			advance(10 * time.Hour)
			b.mustFinish()
			if st := l.State(); runs != c.wantRuns || !c.keep && (st.Outcomes[Poisoned] != 1 || len(b.poisoned()) != 1) {
				t.Errorf("%s: got %d runs, state %+v; want %d runs, and Poisoned 1 unless kept", name, runs, st, c.wantRuns)
			}
		})
	}
}

// Nor is it handled while the copy is retried: a lease of 10 s is shorter than the 15 s of
// SettleTimeout and is no longer renewed. A slow poison queue gets a longer lease.
func TestALeaseShorterThanTheCopyIsNotHandledAgain(t *testing.T) {
	for name, slow := range map[string]bool{"unavailable": false, "slow": true} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				switch {
				case op == "enqueue" && slow:
					time.Sleep(9 * time.Second)
				case op == "enqueue" && time.Since(b.begin) < time.Hour:
					return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 503}
				}
				return act()
			}
			runs := 0
			o := options()
			o.Lease.Visibility.First = 10 * time.Second
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o)
			b.run(l)
			advance(5 * time.Hour)
			b.mustFinish()
			if st := l.State(); runs != 5 || st.Outcomes[Poisoned] != 1 || b.depth(b.queue.Queue) != 0 {
				t.Errorf("%s: got %d runs, state %+v; want 5 runs, Poisoned 1", name, runs, st)
			}
			if slow && len(b.poisoned()) > 3 {
				t.Errorf("%s: got %d copies, want at most 3", name, len(b.poisoned()))
			}
		})
	}
}

// A poison queue that is itself listened to keeps what fails in it hidden, and does not move
// it, drop it, or poll in a tight loop.
func TestAListenerOnAPoisonQueueKeepsWhatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("plays days")
	}
	bubble(t, func(b *bundle) {
		p := &recordingQueue{Queue: b.queue.Queue.Sibling("-poison"), requestLog: b.queue.requestLog}
		if err := p.Create(b.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Queue.Enqueue(b.Context(), `{"N":1}`, nil); err != nil {
			t.Fatal(err)
		}
		runs := 0
		l := New(p, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, options())
		b.run(l)
		advance(24 * time.Hour)
		b.mustFinish()
		if st := l.State(); runs != 5 || b.depth(p.Queue) != 1 || st.Outcomes[Kept] < 5 || st.Outcomes[Kept] > 9 {
			t.Errorf("got %d runs, %d left, state %+v; want runs 5, depth 1, Kept at least 5, Kept at most 9", runs, b.depth(p.Queue), st)
		}
	})
}
