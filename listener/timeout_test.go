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
		over := make(chan struct{})
		o := options()
		o.Timeout = 30 * time.Second
		var told error
		o.OnError = func(err error) { told = err }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			deadline, known = ctx.Deadline()
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			<-inner.Done()
			ended, cause = ctx.Err(), context.Cause(inner)
			close(over)
			return inner.Err()
		}, o)
		b.run(l)
		after(29 * time.Second)
		if want := b.begin.Add(30 * time.Second); !known || !deadline.Equal(want) {
			t.Errorf("got the deadline %v, %v; want %v", deadline, known, want)
		}
		select {
		case <-over:
			t.Errorf("it ended early: %v", ended)
		default:
		}
		after(time.Second + 100*time.Millisecond)
		b.finished()
		if !errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got the error %v, want a deadline", ended)
		}
		if !errors.Is(cause, ErrTimeout) || !errors.Is(cause, context.DeadlineExceeded) {
			t.Errorf("got the cause %v, want both ErrTimeout and a deadline", cause)
		}
		if !errors.Is(told, ErrTimeout) || !strings.Contains(told.Error(), "handler time-out after 30s") || l.State().Retried != 1 {
			t.Errorf("got %v told and %d retried", told, l.State().Retried)
		}
	})
}

func TestEachJobCanHaveItsTimeout(t *testing.T) {
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
				panic("nobody knows")
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
		after(2 * time.Minute)
		b.finished()
		for i, want := range []time.Duration{5 * time.Second, time.Minute, 20 * time.Second, 20 * time.Second} {
			if ran[i] != want {
				t.Errorf("job %d: got %v, want %v", i, ran[i], want)
			}
		}
	})
}

// A handler's result counts after its time-out too. Only a plain error is a failure.
func TestWhatAHandlerAsksForAfterItsTimeoutCounts(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(4)
		said := []error{Snooze(time.Hour), Discard(errors.New("nobody needs it")), Poison(errors.New("it never will")), Retry(time.Hour, errors.New("not yet"))}
		o := options()
		o.Timeout = 10 * time.Second
		var told errorList
		o.OnError = told.add
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			<-ctx.Done()
			time.Sleep(time.Duration(m.Body.N) * time.Millisecond) // one after the other
			return said[m.Body.N]
		}, o)
		b.run(l)
		after(time.Minute)
		b.finished()
		if s := l.State(); s.Snoozed != 1 || s.Discarded != 1 || s.Poisoned != 1 || s.Retried != 1 {
			t.Errorf("one of each kind was asked for, got %+v", s)
		}
		if len(told.list) == 0 {
			t.Error("nothing is told")
		}
		for _, err := range told.list {
			if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the time-out is not told: %v", err)
			}
		}
	})
}

func TestALostLeaseIsNoDeadline(t *testing.T) {
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
		after(time.Minute)
		b.finished()
		if !errors.Is(cause, ErrLeaseLost) || errors.Is(ended, context.DeadlineExceeded) {
			t.Errorf("got %v because of %v, want a lost lease", ended, cause)
		}
	})
}
