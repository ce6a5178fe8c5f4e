package listener

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAHandlerSeesItsDeadline(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var deadline time.Time
		var known bool
		var ended, cause error
		ctxEnded := make(chan struct{})
		o := options()
		o.Timeout = 30 * time.Second
		var reported error
		o.OnError = func(err error) { reported = err }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			deadline, known = ctx.Deadline()
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			<-inner.Done()
			ended, cause = ctx.Err(), context.Cause(inner)
			close(ctxEnded)
			return inner.Err()
		}, o)
		b.run(l)
		advance(29 * time.Second)
		if want := b.begin.Add(30 * time.Second); !known || !deadline.Equal(want) {
			t.Errorf("got deadline %v, %v; want %v", deadline, known, want)
		}
		select {
		case <-ctxEnded:
			t.Errorf("context before its deadline: got its end %v, want it active", ended)
		default:
		}
		advance(time.Second + 100*time.Millisecond)
		b.mustFinish()
		if !errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got error %v, want DeadlineExceeded", ended)
		}
		if !errors.Is(cause, ErrTimeout) || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("got cause %v, want both ErrTimeout and DeadlineExceeded", cause)
		}
		const want = "handler time-out after 30s"
		if !errors.Is(reported, ErrTimeout) || !strings.Contains(reported.Error(), want) || l.State().Outcomes[Retried] != 1 {
			t.Errorf("got error %v and %d retried, want ErrTimeout with %q and 1", reported, l.State().Outcomes[Retried], want)
		}
	})
}

func TestEachJobCanHaveItsOwnTimeout(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(4)
		ran := make([]time.Duration, 4)
		o := options()
		o.Timeout = 20 * time.Second
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		o.TimeoutFor = func(m *Message[job]) time.Duration {
			switch m.Body.N {
			case 0:
				return 5 * time.Second
			case 1:
				return -1
			case 2:
				panic("no time-out for this job")
			}
			return 0
		}
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			begin := time.Now()
			err := sleep(ctx, time.Minute)
			ran[m.Body.N] = time.Since(begin)
			return err
		}, o)
		b.run(l)
		advance(2 * time.Minute)
		b.mustFinish()
		for i, want := range []time.Duration{5 * time.Second, time.Minute, 20 * time.Second, 20 * time.Second} {
			if ran[i] != want {
				t.Errorf("job %d: got %v, want %v", i, ran[i], want)
			}
		}
	})
}

// A handler's result also counts after its time-out. Only a plain error is a failure.
func TestTheResultOfAHandlerCountsAfterItsTimeout(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(4)
		results := []error{
			Snooze(time.Hour), Discard(errors.New("obsolete")), Poison(errors.New("invalid")), Retry(time.Hour, errors.New("not yet")),
		}
		o := options()
		o.Timeout = 10 * time.Second
		var reported errorList
		o.OnError = reported.add
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			<-ctx.Done()
			time.Sleep(time.Duration(m.Body.N) * time.Millisecond) // so that they return one after the other
			return results[m.Body.N]
		}, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if s := l.State(); s.Outcomes[Snoozed] != 1 || s.Outcomes[Discarded] != 1 || s.Outcomes[Poisoned] != 1 || s.Outcomes[Retried] != 1 {
			t.Errorf("got state %+v; want Snoozed 1, Discarded 1, Poisoned 1, Retried 1", s)
		}
		if len(reported.list) == 0 {
			t.Error("got no errors, want some")
		}
		for _, err := range reported.list {
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got error %v, want both ErrTimeout and DeadlineExceeded", err)
			}
		}
	})
}

func TestALostLeaseIsNotADeadline(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var ended, cause error
		o := options()
		o.Timeout = time.Hour
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			if err := b.queue.Queue.(interface{ Clear(context.Context) error }).Clear(ctx); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			ended, cause = ctx.Err(), context.Cause(ctx)
			return ctx.Err()
		}, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if !errors.Is(cause, ErrLeaseLost) || errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got error %v with cause %v, want cause ErrLeaseLost and no deadline", ended, cause)
		}
	})
}

// The time-out of a handler begins when it is known.
func TestATimeoutBeginsWhenItIsKnown(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.TimeoutFor = func(*Message[job]) time.Duration {
			time.Sleep(2 * time.Second)
			return 3 * time.Second
		}
		b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			if deadline, _ := ctx.Deadline(); time.Until(deadline) != 3*time.Second {
				b.Errorf("got %v until the time-out, want 3 s", time.Until(deadline))
			}
			return nil
		}, o))
		advance(time.Minute)
		b.mustFinish()
	})
}

// A handler that succeeds after its time-out has succeeded.
func TestASuccessAfterTheTimeoutCounts(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Timeout = time.Second
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(3 * time.Second); return nil }, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Errors != 0 {
			b.Errorf("got %d succeeded and %d errors, want 1 and 0", st.Outcomes[Deleted], st.Errors)
		}
	})
}

// The context of a handler ends when the handler has returned.
func TestTheContextEndsWithTheHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var kept context.Context
		b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error { kept = ctx; return nil }, options()))
		advance(time.Second)
		if kept.Err() == nil {
			b.Error("the context has not ended")
		}
		b.mustFinish()
	})
}
