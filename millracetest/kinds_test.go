package millracetest_test

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace/millrace/codec"
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
					return listener.Poison(errBroken)
				}
				return nil
			}, nil),
		}, nil)
		checkOutcomes(t, got, counts{listener.Deleted: 199, listener.Poisoned: 1, listener.Snoozed: 1})
		millracetest.RequireEnqueuedKind(t, q, unknown, notice{})
		millracetest.RequireEnqueuedKind(t, q, notices)
	})
}

// Jobs of each kind are decoded as that kind, with its codec, and no others are taken for them.
func TestEnqueuedKindReturnsTheJobsOfOneKind(t *testing.T) {
	q := millracetest.Queue(t)
	type notice struct{ Of string }
	notices, unnamed := kinds.Kind[notice]{Name: "notice", Codec: codec.XML[notice]()}, kinds.Kind[Order]{}
	send := func(of string) {
		if _, err := notices.Producer(q, nil).Send(t.Context(), notice{of}, nil); err != nil {
			t.Fatal(err)
		}
	}
	send("8")
	millracetest.Send(t, q, Order{ID: "7"})
	send("9")
	if got := millracetest.EnqueuedKind(t, q, notices); !slices.Equal(got, []notice{{"8"}, {"9"}}) {
		t.Errorf("got %v, want the notices of 8 and 9 in this order", got)
	}
	millracetest.RequireEnqueuedKind(t, q, notices, notice{"9"}, notice{"8"})
	millracetest.RequireEnqueuedKind(t, q, unnamed, Order{ID: "7"})
	millracetest.RequireEnqueuedKind(t, q, kinds.Kind[Order]{Name: "other"})
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.RequireEnqueuedKind(t, q, notices, notice{"8"}) }),
		`does not hold the 1 job of the kind "notice" expected:`, `too many: {"Of":"9"}`)
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.EnqueuedKind(t, q, kinds.Kind[Order]{Name: "notice"}) }),
		"is not a job of this type", "decode JSON")
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.Enqueued[notice](t, q) }),
		`holds a job of the kind "notice"`, "EnqueuedKind")
}

// The items of a group are jobs, but for those that are done.
func TestEnqueuedReturnsTheItemsOfAGroup(t *testing.T) {
	both(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		shipments := kinds.Kind[Order]{Name: "order"}
		if _, err := shipments.Producer(q, nil).SendGroup(t.Context(), orders(3), nil); err != nil {
			t.Fatal(err)
		}
		millracetest.RequireEnqueuedKind(t, q, shipments, orders(3)...)
		millracetest.DrainKinds(t, q, []listener.Kind{shipments.Handle(func(_ context.Context, m *listener.Message[Order]) error {
			if m.Body.ID == "1" {
				return errBroken
			}
			return nil
		}, nil)}, nil)
		millracetest.RequireEnqueuedKind(t, q, shipments, Order{ID: "1"})
	})
}
