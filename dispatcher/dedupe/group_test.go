package dedupe_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// sendGroup sends a group of jobs under the dedupe key 7.
func (b *bundle) sendGroup(names ...string) {
	b.Helper()
	var jobs []job
	for _, name := range names {
		jobs = append(jobs, job{name})
	}
	if _, err := producer.New[job](b.queue, nil).SendGroup(b.Context(), jobs, &producer.SendOptions{DedupeKey: "7"}); err != nil {
		b.Fatal(err)
	}
}

// A group is one message and has one key, which is recorded when no item is left.
func TestAGroupIsRecordedWhenNoItemIsLeft(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		results map[string]error // of the first time
		again   []string         // the items that are handled when the group comes once more
	}{
		"all succeeded":          {nil, nil},
		"one was discarded":      {map[string]error{"b": listener.Discard(nil)}, nil},
		"all were discarded":     {map[string]error{"a": listener.Discard(nil), "b": listener.Discard(nil)}, []string{"a", "b"}},
		"one waits for a retry":  {map[string]error{"b": listener.Retry(time.Hour, broken)}, []string{"a", "b"}},
		"one was snoozed":        {map[string]error{"b": listener.Snooze(time.Hour)}, []string{"a", "b"}},
		"one failed for good":    {map[string]error{"b": listener.Poison(broken)}, []string{"a", "b"}},
		"the last is left alone": {map[string]error{"a": listener.Poison(broken)}, []string{"a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(b *bundle, g *dedupe.Guard) {
				b.sendGroup("a", "b")
				var r runs
				o, _ := options(g)
				b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
					return errors.Join(r.handle(ctx, m), c.results[m.Body.Name])
				}, 500*time.Millisecond)
				r.want(b, "a", "b")
				b.sendGroup("a", "b")
				var again runs
				b.run(o, again.handle, 500*time.Millisecond)
				again.want(b, c.again...)
			})
		})
	}
}

// The items of a group were all discarded, but not in one delivery. Nothing was handled to success, and the group is
// handled when it comes again. A success of the last delivery is enough.
func TestAGroupThatWasDiscardedBitByBitIsNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		last  error // the result of the second item in the second delivery
		again []string
	}{"discarded": {listener.Discard(nil), []string{"a", "b"}}, "succeeded": {nil, nil}} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(b *bundle, g *dedupe.Guard) {
				b.sendGroup("a", "b")
				o, _ := options(g)
				b.run(o, func(_ context.Context, m *listener.Message[job]) error {
					switch {
					case m.Body.Name == "a":
						return listener.Discard(nil)
					case m.Attempt == 1:
						return errors.New("broken")
					}
					return c.last
				}, time.Minute)
				b.wantDepth(0)
				b.sendGroup("a", "b")
				var again runs
				b.run(o, again.handle, time.Minute)
				again.want(b, c.again...)
			})
		})
	}
}

// The handlers of the items returned after the lease had ended.
func TestAGroupWhoseLeaseEndedIsHandledAgainUnlessItWasDone(t *testing.T) {
	for name, c := range map[string]struct {
		result     error // of the second item
		duplicates int64
	}{"done": {nil, 1}, "one failed": {errors.New("broken"), 0}} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(b *bundle, g *dedupe.Guard) {
				b.sendGroup("a", "b")
				inner := b.queue
				b.queue = &brokenUpdates{inner, queue.ErrReceiptMismatch}
				var r runs
				o, _ := options(g)
				st := b.run(o, listener.EachItem(func(ctx context.Context, m *listener.Message[job]) error {
					time.Sleep(15 * time.Second) // over the visibility
					err := r.handle(ctx, m)
					if m.Body.Name == "b" {
						err = c.result
					}
					return err
				}, 2), 10*time.Second)
				r.want(b, "a", "b")
				if st.Outcomes[listener.Lost] != 1 {
					b.Errorf("got state %+v, want one lost", st)
				}
				b.queue = inner
				if st = b.run(o, r.handle, time.Minute); st.Outcomes[listener.Duplicate] != c.duplicates || st.Outcomes[listener.Deleted] != 1-c.duplicates {
					b.Errorf("got state %+v, want %d duplicates, and else a success", st, c.duplicates)
				}
				b.wantDepth(0)
			})
		})
	}
}
