package millracetest_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
)

// DrainKinds handles the jobs of all kinds, also those that handlers send, and leaves the others.
func TestDrainKindsHandlesAllKinds(t *testing.T) {
	both(t, func(t *testing.T) {
		type notice struct{ Of string }
		shipments, notices, unknown := kinds.Kind[Order]{Name: "order"}, kinds.Kind[notice]{Name: "notice"}, kinds.Kind[notice]{Name: "other"}
		q := millracetest.Queue(t)
		for _, order := range orders(100) {
			if _, err := shipments.Producer(q, nil).Send(t.Context(), order, nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := unknown.Producer(q, nil).Send(t.Context(), notice{}, nil); err != nil {
			t.Fatal(err)
		}
		got := millracetest.DrainKinds(t, q, []listener.Kind{
			shipments.Handle(func(ctx context.Context, m *listener.Message[Order]) error {
				_, err := notices.Producer(q, nil).Send(ctx, notice{m.Body.ID}, nil)
				return err
			}, nil),
			notices.Handle(func(_ context.Context, m *listener.Message[notice]) error {
				if m.Body.Of == "7" {
					return dispatcher.Poison(errBroken)
				}
				return nil
			}, nil),
		}, nil)
		checkOutcomes(t, got, counts{dispatcher.Deleted: 199, dispatcher.Poisoned: 1, dispatcher.Snoozed: 1})
		if left := len(millracetest.Enqueued[notice](t, q)); left != 1 {
			t.Errorf("got %d jobs left, want the one of another kind", left)
		}
	})
}
