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
		var events []string // guarded by mu
		record := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		named := func(name string) Interceptor {
			return func(ctx context.Context, d Delivery, next func(context.Context) error) error {
				record(fmt.Sprintf("%s in, attempt %d, %d left, last %v", name, d.Attempt, d.AttemptsLeft(), d.Last()))
				err := next(ctx)
				record(fmt.Sprintf("%s out: %v", name, ResultOf(err).Outcome))
				return err
			}
		}
		o := options()
		o.Interceptors = []Interceptor{named("outer"), named("inner")}
		o.Poison = poison.Policy{MaxAttempts: 2}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			record(fmt.Sprintf("handler, last %v", m.Last()))
			if m.Last() {
				return nil
			}
			return Snooze(time.Second)
		}, o)
		b.run(l)
		advance(500 * time.Millisecond)
		b.mustFinish()
		want := []string{
			"outer in, attempt 1, 1 left, last false", "inner in, attempt 1, 1 left, last false",
			"handler, last false", "inner out: snoozed", "outer out: snoozed",
		}
		if !slices.Equal(events, want) {
			t.Errorf("events:\ngot  %q\nwant %q", events, want)
		}
	})
}

func TestAnInterceptorCanDecideWithoutTheHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Interceptors = []Interceptor{func(context.Context, Delivery, func(context.Context) error) error {
			return Poison(errors.New("not on my watch"))
		}}
		l := New(b.queue, func(context.Context, *Message[job]) error { t.Error("the handler ran"); return nil }, o)
		b.run(l)
		advance(time.Second)
		b.mustFinish()
		if l.State().Outcomes[Poisoned] != 1 {
			t.Errorf("got %+v, want one poisoned", l.State())
		}
	})
}

func TestAHandlersContextHasItsDelivery(t *testing.T) {
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
		advance(time.Second)
		b.mustFinish()
		if !ok || found.ID != sent.ID || found.Queue != b.queue.Name() || found.Attempt != 1 || found.MaxAttempts != 5 || !value {
			t.Errorf("got delivery %+v, found %v, values kept %v; want attempt 1 of 5 of message %s", found, ok, value, string(sent.ID))
		}
		if _, ok := DeliveryFrom(context.Background()); ok {
			t.Error("a context of no handler: got a delivery, want none")
		}
	})
}

func TestTheContextOfABatchHasNoDelivery(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2)
		found := true
		l := New(b.queue, Batch(func(ctx context.Context, ms []*Message[job]) []error {
			_, found = DeliveryFrom(ctx)
			return nil
		}, 2, time.Second), options())
		b.run(l)
		advance(2 * time.Second)
		b.mustFinish()
		if found || l.State().Outcomes[Deleted] != 2 {
			t.Errorf("got a delivery: %v, and %d succeeded; want none and 2", found, l.State().Outcomes[Deleted])
		}
	})
}

func TestABatchThatCannotFillIsReportedOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(20)
		var warnings []string
		o := options()
		o.Concurrency = 4
		o.OnError = func(err error) {
			var e *SetupError
			if !errors.As(err, &e) {
				t.Error(err)
				return
			}
			warnings = append(warnings, err.Error())
		}
		l := New(b.queue, Batch(func(context.Context, []*Message[job]) []error { return nil }, 10, time.Second), o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if len(warnings) != 1 || l.State().Outcomes[Deleted] != 20 {
			t.Errorf("got the warnings %q and %d succeeded, want one and 20", warnings, l.State().Outcomes[Deleted])
		}
	})
}

func TestAFailureJoinedWithASnoozeIsAFailure(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		l := New(b.queue, func(context.Context, *Message[job]) error {
			return errors.Join(Snooze(time.Minute), errors.New("broken"))
		}, options())
		b.run(l)
		advance(500 * time.Millisecond)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Retried] != 1 || st.Outcomes[Snoozed] != 0 {
			t.Errorf("got %d retried and %d snoozed, want a failure", st.Outcomes[Retried], st.Outcomes[Snoozed])
		}
	})
}

func TestTheZeroListenerReturnsErrors(t *testing.T) {
	var l Listener[job]
	l.Halt()
	if l.State().Phase != Waiting || l.Configure(Settings{}) == nil {
		t.Errorf("got state %+v, want Phase %v and an error of Configure", l.State(), Waiting)
	}
	if err := l.Run(t.Context()); err == nil {
		t.Error("Run of the zero listener: got no error, want one")
	}
	var typed *recordingQueue
	if err := New(typed, func(context.Context, *Message[job]) error { return nil }, nil).Run(t.Context()); err == nil {
		t.Error("Run on a nil queue: got no error, want one")
	}
}
