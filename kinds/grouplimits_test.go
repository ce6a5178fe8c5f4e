package kinds_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
)

// A group of a kind is handled under the options of its kind, and left alone where the kind is unknown.
func TestAGroupOfAKindIsHandledAsThatKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		if _, err := orders.Producer(b.queue, nil).SendGroup(b.Context(), []order{{0}, {1}, {2}}, nil); err != nil {
			b.Fatal(err)
		}
		if older := b.run(5*time.Minute, b.kindsOf(emails.Handle(handler[email](b, nil), nil))); older.Poisoned != 0 || len(b.handled) != 0 {
			b.Errorf("a worker that does not know the kind handled %v, and says %+v", b.handled, older)
		}
		time.Sleep(time.Minute)
		var ran []int
		begin, own := time.Now(), &kinds.Options{
			MaxAttempts: 3, Timeout: time.Second, RetryDelay: func(attempt int, _ error) time.Duration { return time.Duration(attempt) * time.Minute },
		}
		state := b.run(time.Hour, b.kindsOf(orders.Handle(func(ctx context.Context, m *listener.Message[order]) error {
			ran = append(ran, m.Body.Total*1000+int(time.Since(begin).Minutes()))
			if m.MaxAttempts != 3 {
				b.Errorf("got %d attempts", m.MaxAttempts)
			}
			if m.Body.Total == 1 {
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), listener.ErrTimeout) {
					b.Errorf("it ended because of %v", context.Cause(ctx))
				}
				return ctx.Err()
			}
			return nil
		}, own)))
		if !slices.Equal(ran, []int{0, 1000, 2000, 1001, 1003}) || state.Poisoned != 1 || b.depth() != 0 {
			b.Errorf("ran %v, and says %+v", ran, state)
		}
	})
}

// In an outage of its kind a group waits as a job does.
func TestAGroupIsHeldBackInAnOutageOfItsKind(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 100 {
			if _, err := orders.Producer(b.queue, nil).SendGroup(b.Context(), []order{{i}, {i}}, nil); err != nil {
				b.Fatal(err)
			}
		}
		send(b, emails, email{"ann@example.org"})
		state := b.run(10*time.Minute, b.kindsOf(orders.Handle(failsFor[order](b, 5*time.Minute), nil), emails.Handle(handler[email](b, nil), nil)))
		if state.Snoozed < 30 || state.Poisoned != 0 || state.Succeeded != 101 {
			b.Errorf("got %+v", state)
		}
	})
}
