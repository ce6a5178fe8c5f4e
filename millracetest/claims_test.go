package millracetest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/producer"
)

// Bodies that are stored are seen like others, in groups too, until their jobs are done.
func TestStoredBodiesAreSeen(t *testing.T) {
	both(t, func(t *testing.T) {
		claims, err := claimcheck.New(blob.Memory(), "bodies", nil)
		if err != nil {
			t.Fatal(err)
		}
		q := millracetest.WithClaims(millracetest.Queue(t), claims)
		large := func(c string) Order { return Order{ID: strings.Repeat(c, 60_000)} }
		millracetest.Send(t, q, large("a"), Order{ID: "small"})
		if _, err := producer.New(q, &producer.Options[Order]{Claims: claims}).SendGroup(t.Context(), []Order{large("b"), large("c")}, nil); err != nil {
			t.Fatal(err)
		}
		millracetest.RequireEnqueued(t, q, large("a"), large("b"), large("c"), Order{ID: "small"})
		o := &listener.Options[Order]{Claims: claims}
		got := millracetest.Drain(t, q, func(_ context.Context, m *listener.Message[Order]) error {
			if m.Body == large("c") {
				return errBroken
			}
			return nil
		}, o)
		checkOutcomes(t, got, counts{listener.Deleted: 2, listener.Retried: 1})
		millracetest.RequireEnqueued(t, q, large("c"))
		if r := millracetest.Work(t, returning(nil), large("d"), o); r.Outcome != listener.Deleted {
			t.Errorf("got %+v, want deleted", r)
		}
	})
}

// A group is one message: its result is that of the item that is worst off.
func TestWorkGroupReturnsTheResultOfTheMessage(t *testing.T) {
	both(t, func(t *testing.T) {
		var seen []string
		r := millracetest.WorkGroup(t, func(_ context.Context, m *listener.Message[Order]) error {
			seen = append(seen, m.Body.ID)
			if m.Body.ID == "1" {
				return errBroken
			}
			return nil
		}, orders(3), nil)
		if r.Outcome != listener.Retried || !errors.Is(r.Err, errBroken) || r.Attempts != 1 || !slices.Equal(seen, []string{"0", "1", "2"}) {
			t.Errorf("got %+v after %v, want retried after all three", r, seen)
		}
		if r := millracetest.WorkGroup(t, returning(nil), orders(3), nil); r.Outcome != listener.Deleted {
			t.Errorf("got %+v, want deleted", r)
		}
	})
}
