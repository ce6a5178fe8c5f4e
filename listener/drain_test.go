package listener

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// L-10, invariant 7: when the context ends, handlers finish, their messages are deleted, and no
// further dequeue is sent.
func TestTheStopLetsHandlersFinish(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(200)
		var finished atomic.Int64
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(10 * time.Second):
				finished.Add(1)
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, options())
		b.run(l)
		advance(time.Second)
		polls := len(b.queue.sent("dequeue"))
		stopped := time.Now()
		b.mustFinish()
		if took := time.Since(stopped); took > 10*time.Second {
			t.Errorf("duration of the drain: got %v, want at most %v", took, 10*time.Second)
		}
		st := l.State()
		if st.Outcomes[Deleted] != 64 || finished.Load() != 64 || st.Outcomes[Returned] != 0 || st.Loops != 0 {
			t.Errorf("got %d finished, state %+v; want Succeeded 64, finished 64, Returned 0, Loops 0", finished.Load(), st)
		}
		if n := len(b.queue.sent("dequeue")); n != polls {
			t.Errorf("got %d dequeues after the stop, want 0", n-polls)
		}
		if d := b.depth(b.queue.Queue); d != 200-64 {
			t.Errorf("got %d messages left; want %v", d, 200-64)
		}
	})
}

// A dequeue in flight is not cancelled, and the messages it returns are visible again at once,
// not after their visibility timeout.
func TestMessagesFetchedAfterTheStopAreGivenBackAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(32)
		b.queue.latency = 2 * time.Second
		var runs atomic.Int64
		l := New(b.queue, func(context.Context, *Message[job]) error { runs.Add(1); return nil }, options())
		b.run(l)
		advance(time.Second) // the dequeue is in flight
		b.mustFinish()
		if st := l.State(); runs.Load() != 0 || st.Received != 32 || st.Outcomes[Returned] != 32 {
			t.Errorf("got %d runs, state %+v; want runs 0, Received 32, Returned 32", runs.Load(), st)
		}
		batch, err := b.queue.Queue.Dequeue(b.Context(), 32, time.Second)
		if err != nil || len(batch) != 32 {
			t.Errorf("visible messages: got %d, %v; want 32", len(batch), err)
		}
	})
}

// After the grace period handlers are cancelled and their messages given back at once.
func TestTheGracePeriodEnds(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		var causes atomic.Int64
		o := options()
		o.Grace = 7 * time.Second
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			if errors.Is(context.Cause(ctx), dispatcher.ErrStopping) {
				causes.Add(1)
			}
			return ctx.Err()
		}, o)
		b.run(l)
		advance(time.Second)
		stopped := time.Now()
		b.mustFinish()
		if took := time.Since(stopped); took != 7*time.Second {
			t.Errorf("duration of the drain: got %v, want the grace period", took)
		}
		if st := l.State(); causes.Load() != 5 || st.Outcomes[Returned] != 5 || st.Outcomes[Retried] != 0 {
			t.Errorf("got %d cancelled as stopping, state %+v; want causes 5, Returned 5, Retried 0", causes.Load(), st)
		}
		if batch, err := b.queue.Queue.Dequeue(b.Context(), 32, time.Second); err != nil || len(batch) != 5 {
			t.Errorf("visible messages: got %d, %v; want 5", len(batch), err)
		}
	})
}

// Invariant 2: the message of a handler that ignores its context but returns just before it
// would be abandoned is deleted, even beside a request that hangs.
func TestWorkDoneAtTheLastMomentIsDeleted(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2)
		o := options()
		o.Grace, o.Lease.SettleTimeout = 5*time.Second, 5*time.Second
		var begun atomic.Int32
		l := New(&hangingDelete{Queue: b.queue}, func(context.Context, *Message[job]) error {
			if begun.Add(1) > 1 {
				time.Sleep(time.Second + o.Grace + o.Lease.SettleTimeout + time.Second/2)
			}
			return nil
		}, o)
		b.run(l)
		advance(time.Second)
		b.stop()
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Unsettled] != 1 {
			t.Errorf("got state %+v, want Succeeded 1, Unsettled 1", st)
		}
	})
}

// hangingDelete is a queue whose first delete gets no response.
type hangingDelete struct {
	queue.Queue
	hung atomic.Bool
}

func (q *hangingDelete) Delete(ctx context.Context, l queue.Lease) error {
	if q.hung.CompareAndSwap(false, true) {
		<-ctx.Done()
		return ctx.Err()
	}
	return q.Queue.Delete(ctx, l)
}

// Halt ends the grace period at once.
func TestHaltEndsTheDrainAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3)
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return ctx.Err() }, options())
		b.run(l)
		advance(time.Second)
		b.stop()
		advance(time.Second)
		halted := time.Now()
		l.Halt()
		l.Halt()
		b.mustFinish()
		if took := time.Since(halted); took > time.Second {
			t.Errorf("time from Halt to the return of Run: got %v, want at most %v", took, time.Second)
		}
		if st := l.State(); st.Outcomes[Returned] != 3 {
			t.Errorf("got state %+v; want Returned 3", st)
		}
	})
}

// Halt without a stop ends a running listener, and keeps one that has not started from starting.
func TestHaltWithoutAStop(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Minute)
		l.Halt()
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		b.stop()
		early := New(b.queue, nothing, options())
		early.Halt()
		if err := early.Run(b.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A handler that ignores its context is abandoned and named, and Run returns nevertheless.
func TestAHandlerThatIgnoresItsContextIsNamed(t *testing.T) {
	for _, halt := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			sent := b.putText(`{"N":1}`)
			release := make(chan struct{})
			o := options()
			o.Grace = 5 * time.Second
			l := New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, o)
			b.run(l)
			advance(time.Second)
			stopped := time.Now()
			b.stop()
			if halt {
				l.Halt()
			}
			err := <-b.done
			var abandoned *dispatcher.AbandonedError
			if !errors.As(err, &abandoned) || len(abandoned.Messages) != 1 || abandoned.Messages[0] != sent.ID ||
				!strings.Contains(err.Error(), string(sent.ID)) {
				t.Errorf("got error %v, want the message %s abandoned", err, string(sent.ID))
			}
			if took := time.Since(stopped); halt && took > 3*time.Second || took > 30*time.Second {
				t.Errorf("halt %v: Run returned after %v, want at most 3 s after Halt, 30 s otherwise", halt, took)
			}
			close(release)
			synctest.Wait()
		})
	}
}

// Halt also ends the wait for handlers that ignore their context after the grace period.
func TestHaltAfterTheGracePeriod(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		release := make(chan struct{})
		o := options()
		o.Grace, o.Lease.SettleTimeout = time.Second, time.Hour
		l := New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, o)
		b.run(l)
		advance(time.Second)
		b.stop()
		advance(time.Minute)
		halted := time.Now()
		l.Halt()
		var abandoned *dispatcher.AbandonedError
		if err := <-b.done; !errors.As(err, &abandoned) {
			t.Errorf("got error %v, want an *AbandonedError", err)
		}
		if took := time.Since(halted); took > 3*time.Second {
			t.Errorf("time from Halt to the return of Run: got %v, want at most %v", took, 3*time.Second)
		}
		close(release)
		synctest.Wait()
	})
}

// A dequeue whose response takes longer than the lease starts no handler.
func TestADequeueSlowerThanItsLeaseStartsNoHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		slow := true
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "dequeue" && slow {
				slow = false
				time.Sleep(20 * time.Second)
			}
			return err
		}
		runs := 0
		o := options()
		o.Lease.Visibility = dispatcher.FixedVisibility(5 * time.Second)
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); runs != 1 || st.Outcomes[Lost] != 1 || st.Outcomes[Deleted] != 1 {
			t.Errorf("got %d runs, state %+v; want runs 1, Lost 1, Succeeded 1", runs, st)
		}
	})
}

// A service that does not respond does not delay a halted listener: requests are cancelled.
func TestHaltCancelsRequests(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		l := New[job](&hangingDequeue{recordingQueue: b.queue}, nothing, options())
		b.run(l)
		advance(time.Second)
		b.stop()
		advance(time.Second)
		halted := time.Now()
		l.Halt()
		b.mustFinish()
		if took := time.Since(halted); took > 3*time.Second {
			t.Errorf("time from Halt to the return of Run: got %v, want at most %v", took, 3*time.Second)
		}
	})
}

// hangingDequeue is a queue whose dequeues last until they are cancelled.
type hangingDequeue struct{ *recordingQueue }

func (h *hangingDequeue) Dequeue(ctx context.Context, _ int, _ time.Duration) ([]queue.Message, error) {
	<-ctx.Done()
	return nil, &queue.Error{Op: "dequeue", Kind: queue.ErrOutcomeUnknown, Err: ctx.Err()}
}

// Handlers see the values of Run's context.
func TestHandlersSeeTheValuesOfTheContext(t *testing.T) {
	type key struct{}
	bubble(t, func(b *bundle) {
		b.put(1)
		var value any
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error { value = ctx.Value(key{}); return nil }, options())
		ctx, stop := context.WithCancel(context.WithValue(b.Context(), key{}, "flour"))
		b.stop, b.done = stop, make(chan error, 1)
		go func() { b.done <- l.Run(ctx) }()
		advance(time.Second)
		b.mustFinish()
		if value != "flour" {
			t.Errorf("got %v; want value \"flour\"", value)
		}
	})
}

// L-11: several listeners run in one program, here on one queue.
func TestSeveralListenersShareAQueue(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(3000)
		var runs atomic.Int64
		handler := func(context.Context, *Message[job]) error { runs.Add(1); time.Sleep(30 * time.Millisecond); return nil }
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 4)
		for range 4 {
			go func() { done <- New(b.queue, handler, options()).Run(ctx) }()
		}
		advance(time.Minute)
		stop()
		for range 4 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if runs.Load() != 3000 || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got %d runs, %d left; want runs 3000, depth 0", runs.Load(), b.depth(b.queue.Queue))
		}
	})
}
