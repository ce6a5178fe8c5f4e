package listener

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/poison"
)

func TestInterceptorsServeListenersOfEveryType(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var mu sync.Mutex
		var said []string
		note := func(line string) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, line)
		}
		named := func(name string) Interceptor {
			return func(ctx context.Context, d Delivery, next func(context.Context) error) error {
				note(fmt.Sprintf("%s in, attempt %d, %d left, last %v", name, d.Attempt, d.AttemptsLeft(), d.Last()))
				err := next(ctx)
				note(fmt.Sprintf("%s out: %v", name, ResultOf(err).Outcome))
				return err
			}
		}
		o := options()
		o.Interceptors = []Interceptor{named("outer"), named("inner")}
		o.Poison = poison.Policy{MaxAttempts: 2}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			note(fmt.Sprintf("handler, last %v", m.Last()))
			if m.Last() {
				return nil
			}
			return Snooze(time.Second)
		}, o)
		b.run(l)
		after(500 * time.Millisecond)
		b.finished()
		want := []string{
			"outer in, attempt 1, 1 left, last false", "inner in, attempt 1, 1 left, last false",
			"handler, last false", "inner out: snoozed", "outer out: snoozed",
		}
		if !slices.Equal(said, want) {
			t.Errorf("got  %q\nwant %q", said, want)
		}
	})
}

func TestAnInterceptorCanDecideAlone(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Interceptors = []Interceptor{func(context.Context, Delivery, func(context.Context) error) error {
			return Poison(errors.New("not on my watch"))
		}}
		l := New(b.queue, func(context.Context, *Message[job]) error { t.Error("the handler ran"); return nil }, o)
		b.run(l)
		after(time.Second)
		b.finished()
		if l.State().Poisoned != 1 {
			t.Errorf("got %+v, want one poisoned", l.State())
		}
	})
}

func TestTheContextKnowsItsDelivery(t *testing.T) {
	bubble(t, func(b *bundle) {
		sent := b.putText(`{"N":7}`)
		type key struct{}
		var found Delivery
		var ok, value bool
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			inner, cancel := context.WithCancel(context.WithValue(ctx, key{}, 1))
			defer cancel()
			found, ok = DeliveryFrom(inner)
			value = ctx.Value(key{}) == nil && inner.Value(key{}) == 1
			return nil
		}, options())
		b.run(l)
		after(time.Second)
		b.finished()
		if !ok || found.ID != sent.ID || found.Queue != b.queue.Name() || found.Attempt != 1 || found.MaxAttempts != 5 || !value {
			t.Errorf("got %+v, %v", found, ok)
		}
		if _, ok := DeliveryFrom(context.Background()); ok {
			t.Error("a context of no handler knows a delivery")
		}
	})
}

func TestABatchHasNoDeliveryOfItsOwn(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2)
		found := true
		l := New(b.queue, Batch(func(ctx context.Context, ms []*Message[job]) []error {
			_, found = DeliveryFrom(ctx)
			return nil
		}, 2, time.Second), options())
		b.run(l)
		after(2 * time.Second)
		b.finished()
		if found || l.State().Succeeded != 2 {
			t.Errorf("got a delivery: %v, and %d succeeded", found, l.State().Succeeded)
		}
	})
}

func TestABatchThatNeverFillsIsWarnedOfOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(20)
		var warned []string
		o := options()
		o.Concurrency = 4
		o.OnError = func(err error) {
			var e *SetupError
			if !errors.As(err, &e) {
				t.Error(err)
				return
			}
			warned = append(warned, err.Error())
		}
		l := New(b.queue, Batch(func(context.Context, []*Message[job]) []error { return nil }, 10, time.Second), o)
		b.run(l)
		after(time.Minute)
		b.finished()
		if len(warned) != 1 || l.State().Succeeded != 20 {
			t.Errorf("got the warnings %q and %d succeeded, want one and 20", warned, l.State().Succeeded)
		}
	})
}

func TestAJoinedSnoozeDoesNotSwallowAFailure(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		l := New(b.queue, func(context.Context, *Message[job]) error {
			return errors.Join(Snooze(time.Minute), errors.New("broken"))
		}, options())
		b.run(l)
		after(500 * time.Millisecond)
		b.finished()
		if st := l.State(); st.Retried != 1 || st.Snoozed != 0 {
			t.Errorf("got %d retried and %d snoozed, want a failure", st.Retried, st.Snoozed)
		}
	})
}

func TestTheZeroListenerSaysSo(t *testing.T) {
	var l Listener[job]
	l.Halt()
	if l.State().Phase != Waiting || l.Configure(Settings{}) == nil {
		t.Errorf("got %+v", l.State())
	}
	if err := l.Run(t.Context()); err == nil {
		t.Error("the zero listener ran")
	}
	var typed *wire
	if err := New(typed, func(context.Context, *Message[job]) error { return nil }, nil).Run(t.Context()); err == nil {
		t.Error("a listener of a nil queue ran")
	}
}
