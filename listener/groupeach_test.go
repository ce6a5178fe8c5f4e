package listener

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/poison"
)

// A result that wraps that of EachItem and asks for something else is another result.
func TestMiddlewareWrapsTheResultOfEach(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		var got items
		each := EachItem(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if m.Item == 1 {
				return errors.New("broken")
			}
			return nil
		}), 2)
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if err := each(ctx, m); err != nil {
				return Poison(err)
			}
			return nil
		}, options())
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1)
		if s := l.State(); s.Outcomes[Poisoned] != 1 || s.Outcomes[Retried] != 0 {
			t.Errorf("got %+v, want poison at once", s)
		}
	})
}

// Middleware may replace the error of a group by one in which items ask for something else. It counts
// for these items, unless they are done.
func TestMiddlewareReplacesTheErrorsOfItems(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		var got items
		each := EachItem(got.handler(t, func(_ context.Context, m *Message[job]) error {
			switch {
			case m.Item == 0:
				return Discard(errors.New("unwanted"))
			case m.Item == 1 && m.DequeueCount == 1:
				return errors.New("busy")
			}
			return nil
		}), 2)
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			err := each(ctx, m)
			var group *GroupError
			if m.DequeueCount > 1 || !errors.As(err, &group) || len(group.Errors) != 2 {
				return err
			}
			changed := *group
			changed.Errors = map[int]error{0: errors.New("failed"), 1: Snooze(time.Second)}
			return &changed
		}, options())
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 2, 1)
		if s := l.State(); s.Outcomes[Snoozed] != 1 || s.Outcomes[Retried] != 0 || s.Outcomes[Deleted] != 1 {
			t.Errorf("got %d snoozed, %d retried, %d succeeded; want 1, 0, 1", s.Outcomes[Snoozed], s.Outcomes[Retried], s.Outcomes[Deleted])
		}
	})
}

// What middleware makes of failures is no result of items that were not handled: a stop leaves them.
func TestAStopLosesNoItemWhoseErrorsAreIgnored(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(9)
		var got items
		each := EachItem(got.handler(t, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(10 * time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}), 2)
		o := options()
		o.Grace = -1
		h := func(ctx context.Context, m *Message[job]) error {
			_ = each(ctx, m)
			return nil
		}
		b.run(New(b.queue, h, o))
		advance(15 * time.Second)
		b.mustFinish()
		b.run(New(b.queue, h, o))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1, 1, 1, 1, 1, 1, 1)
		if b.depth(b.queue) != 0 {
			t.Error("something is left")
		}
	})
}

// An error after all items have succeeded, such as that of a commit, is no success.
func TestAnErrorAfterASuccessfulEachIsThatOfAllItems(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(4)
		var got items
		each := EachItem(got.handler(t, func(context.Context, *Message[job]) error { return nil }), 2)
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			if err := each(ctx, m); err != nil {
				return err
			}
			if m.Attempt == 1 {
				return errors.New("commit failed")
			}
			return nil
		}, options())
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 2, 2, 2, 2)
		if s := l.State(); s.Outcomes[Retried] != 1 || s.Outcomes[Deleted] != 1 {
			t.Errorf("got %+v, want a retry and then a success", s)
		}
	})
}

// The failure of an item that middleware overrides is not why the group is poison later.
func TestAFailureThatIsOverriddenExplainsNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		each := EachItem(func(_ context.Context, m *Message[job]) error {
			switch {
			case m.Item == 0 && m.DequeueCount == 1:
				return Poison(errors.New("the overridden failure"))
			case m.Item == 0:
				return errors.New("the true failure")
			case m.Item == 1 && m.DequeueCount < 3:
				return Snooze(time.Second)
			}
			return nil
		}, 1)
		o := options()
		o.Poison.MaxAttempts = 1
		b.run(New(b.queue, func(ctx context.Context, m *Message[job]) error {
			err := each(ctx, m)
			if m.DequeueCount == 1 {
				return Snooze(time.Second)
			}
			return err
		}, o))
		advance(time.Hour)
		b.mustFinish()
		records := b.poisonRecords()
		if len(records) != 1 || records[0].Reason != poison.ReasonAttempts || !strings.Contains(records[0].Error, "the true failure") {
			t.Errorf("got %+v, want the true failure", records)
		}
	})
}

// Middleware may give up waiting for an EachItem and leave it behind. Then the EachItem must not take over the
// items of another call, and what it has done is done.
func TestAnEachThatIsLeftBehindHandlesNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		var handled atomic.Int32
		each := EachItem(func(context.Context, *Message[job]) error { handled.Add(1); return nil }, 2)
		var left []func() error
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			for _, late := range left {
				if late() == nil {
					t.Errorf("item %d: an EachItem for another item had no error", m.Item)
				}
			}
			left = append(left, func() error { return each(ctx, m) })
			return nil
		}, options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		for _, late := range left {
			if late() == nil {
				t.Error("an EachItem after its delivery had no error")
			}
		}
		if s := l.State(); s.Outcomes[Deleted] != 1 || len(left) != 3 || handled.Load() != 0 {
			t.Errorf("got %+v and %d calls, of which %d were handled", s, len(left), handled.Load())
		}
	})
}

// What an EachItem has done before middleware gave up waiting for it is not done again.
func TestAnEachThatIsAbandonedKeepsWhatIsDone(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(6)
		var got items
		each := EachItem(got.handler(t, func(context.Context, *Message[job]) error {
			time.Sleep(2 * time.Second)
			return nil
		}), 1)
		b.run(New(b.queue, func(ctx context.Context, m *Message[job]) error {
			done := make(chan error, 1)
			go func() { done <- each(ctx, m) }()
			select {
			case err := <-done:
				return err
			case <-time.After(5 * time.Second):
				return errors.New("it takes too long")
			}
		}, options()))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 2, 1, 2, 1) // at each delivery two are done and one is running
		if b.depth(b.queue) != 0 || b.poisonDepth() != 0 {
			t.Error("something is left")
		}
	})
}

// slowError takes a second to compare.
type slowError struct{ error }

func (e slowError) Unwrap() error { return e.error }

func (slowError) Is(error) bool {
	time.Sleep(time.Second)
	return false
}

// The next item begins when the result of the one before is known: what is recorded with its start is true.
func TestAnItemKeepsItsPlaceUntilItsResultIsKnown(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(2)
		var began [2]time.Time
		b.run(New(b.queue, EachItem(func(_ context.Context, m *Message[job]) error {
			if began[m.Item] = time.Now(); m.Item == 0 {
				return slowError{Snooze(time.Hour)}
			}
			return nil
		}, 1), options()))
		advance(time.Minute)
		b.mustFinish()
		if waited := began[1].Sub(began[0]); waited < time.Second {
			t.Errorf("the second item began %v after the first one, whose result takes a second", waited)
		}
	})
}
