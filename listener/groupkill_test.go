package listener

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// ledger says what became of the items of a group.
type ledger struct {
	mu        sync.Mutex
	completed []int // times the handler of each succeeded; guarded by mu
	mended    bool  // whether items that fail no longer do; guarded by mu
}

// groupItems is the number of items of the group of the kill test.
const groupItems = 8

// work runs a process on the queue for a while.
func (b *bundle) work(k *killtest.Killer, l *ledger, way func(Handler[job]) Handler[job]) {
	b.Helper()
	b.queue.intercept = k.Step
	o := fixed(5 * time.Second)
	o.RetryDelay = func(int, error) time.Duration { return time.Second }
	o.Poison.MaxAttempts = 2
	b.run(New(b.queue, way(func(ctx context.Context, m *Message[job]) error {
		l.mu.Lock()
		mended := l.mended
		l.mu.Unlock()
		if m.Item == 6 {
			if err := m.Save(ctx, m.Body); err != nil {
				return err
			}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case m.Item == 1 && m.Attempt == 1, m.Item == 3 && !mended:
			return k.Step("failing handler", func() error { return errors.New("broken") })
		case m.Item == 5 && !mended:
			return k.Step("failing handler", func() error { return Poison(errors.New("no use")) })
		}
		return k.Step("handler", func() error {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.completed[m.Item]++
			return nil
		})
	}), o))
	advance(2 * time.Minute)
	b.mustFinish()
	b.queue.intercept = nil
}

// recorded returns the items that are done according to the messages in both queues, and those of
// which there is no message any more.
func (b *bundle) recorded() (done envelope.ItemSet, messages int) {
	b.Helper()
	for _, q := range []queue.Queue{b.queue.Queue, b.queue.Queue.Sibling(poison.Suffix)} {
		batch, err := q.Peek(b.Context(), queue.MaxBatch)
		if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			b.Fatal(err)
		}
		for _, m := range batch {
			text := m.Text
			if r, err := poison.ParseRecord(text); err == nil {
				text = r.Text
			}
			head, _, _, err := envelope.Open(text, codec.Envelope, envelope.Groups)
			if err != nil {
				b.Fatal(err)
			}
			if messages++; messages == 1 {
				done = head.Done
			} else { // a copy and its original, killed in between: only what both say is certain
				both := done
				done = envelope.NewItemSet(groupItems, func(i int) bool { return both.Has(i) && head.Done.Has(i) })
			}
		}
	}
	return done, messages
}

// A process that is killed at any step loses no item, and an item whose completion was recorded is not
// handled again.
func TestNoKillLosesAnItemOrRedoesARecordedOne(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, name := range []string{"one by one", "Each"} {
		for _, kind := range []string{"dequeue", "handler", "failing handler", "update", "enqueue", "create", "delete"} {
			for _, after := range []bool{false, true} {
				for n, killed := 1, true; killed; n++ {
					when := fmt.Sprintf("%s, %s %d, after it: %v", name, kind, n, after)
					bubble(t, func(b *bundle) {
						killed = b.killGroup(&killtest.Killer{Kind: kind, Nth: n, After: after}, ways[name], when)
					})
					if !killed && n == 1 {
						t.Errorf("%s: no process was killed", when)
					}
					if kind == "dequeue" && n == 4 { // there is no end of polls
						break
					}
				}
			}
		}
	}
}

// killGroup runs a process with the killer and then others, and reports whether the first was killed.
func (b *bundle) killGroup(k *killtest.Killer, way func(Handler[job]) Handler[job], when string) (killed bool) {
	b.Helper()
	b.putGroup(groupItems)
	l := &ledger{completed: make([]int, groupItems)}
	b.work(k, l, way)
	killed = k.Dead()
	advance(time.Hour) // the leases of the dead end
	done, messages := b.recorded()
	before := slices.Clone(l.completed)
	for i, n := range before {
		if done.Has(i) && n == 0 {
			b.Errorf("%s: item %d is recorded as done, and is not", when, i)
		}
		if messages == 0 && n == 0 {
			b.Errorf("%s: item %d is lost", when, i)
		}
	}
	b.work(&killtest.Killer{}, l, way)
	l.mended = true
	_, err := poison.Redrive(b.Context(), b.queue.Queue, nil)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		b.Error(err)
	}
	b.work(&killtest.Killer{}, l, way)
	for i, n := range l.completed {
		if n == 0 {
			b.Errorf("%s: item %d was never handled", when, i)
		}
		if done.Has(i) && n != before[i] {
			b.Errorf("%s: item %d was recorded as done and is handled again", when, i)
		}
		if !killed && n != 1 {
			b.Errorf("%s: item %d was handled %d times", when, i, n)
		}
	}
	if left := b.depth(b.queue.Queue) + b.poisonDepth(); left != 0 {
		b.Errorf("%s: %d messages are left", when, left)
	}
	return killed
}

// runsUntilSettled handles a group of jobs in a series of processes, each of which dies when an item
// starts that kills. It returns how often each item ran.
func (b *bundle) runsUntilSettled(n int, way func(Handler[job]) Handler[job], kills, fails func(item int) bool) []int {
	b.Helper()
	var got items
	var dead atomic.Bool
	handler := got.handler(b, func(ctx context.Context, m *Message[job]) error {
		if kills(m.Item) {
			dead.Store(true)
			<-ctx.Done()
		}
		time.Sleep(time.Millisecond)
		if fails(m.Item) {
			return errors.New("broken")
		}
		return ctx.Err()
	})
	b.queue.intercept = func(_ string, act func() error) error {
		if dead.Load() {
			return &queue.Error{Kind: queue.ErrUnavailable}
		}
		return act()
	}
	for processes := 0; b.depth(b.queue.Queue) > 0 && processes < 60; processes++ {
		dead.Store(false)
		l := New(b.queue, way(func(ctx context.Context, m *Message[job]) error {
			if dead.Load() {
				return ctx.Err()
			}
			return handler(ctx, m)
		}), fixed(10*time.Second))
		b.run(l)
		advance(5 * time.Second)
		dead.Store(true)
		l.Halt()
		b.mustFinish()
		advance(time.Minute) // its lease ends
	}
	b.queue.intercept = nil
	return got.counts(n)
}

// An item that kills its process is poison after about as many starts as a job of its own, also
// beside more of its kind than MaxLost. The others are handled, and what was done after the first
// death is not done again.
func TestAnItemThatKillsItsProcessHarmsNoOther(t *testing.T) {
	for first, last := range map[int]int{4: 4, 2: 7} {
		bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
			b.putGroup(10)
			kills := func(item int) bool { return first <= item && item <= last }
			fails := func(item int) bool { return item == 8 } // its attempts are never recorded
			runs := b.runsUntilSettled(10, way, kills, fails)
			for item, n := range runs {
				switch want := poisonrecord.DefaultMaxLost; {
				case kills(item) && (n < want-1 || n > want+4): // progress of the others resets the count
					b.Errorf("item %d, which kills, ran %d times, want %d to %d; all: %v", item, n, want-1, want+4, runs)
				case !kills(item) && !fails(item) && (n < 1 || n > 3):
					b.Errorf("item %d ran %d times, want 1 to 3; all: %v", item, n, runs)
				}
			}
			records := b.poisonRecords()
			if len(records) != 1 || records[0].Reason != poison.ReasonLost {
				b.Fatalf("got the poison %+v, want one group that is lost", records)
			}
			head, _, _, err := envelope.Open(records[0].Text, codec.Envelope, envelope.Groups)
			undone := envelope.NewItemSet(10, func(i int) bool { return !kills(i) && !fails(i) })
			if err != nil || head.Done != undone || head.Started != "" {
				b.Errorf("the poison has the head %+v, %v; want all items done but those that kill or fail", head, err)
			}
		})
	}
}

// A handler that returns without its lease has not killed its process, also if its delivery has recorded
// progress or a further round of its items: not even with MaxLost 1 is its group poison.
func TestAGroupThatReturnsWithoutItsLeaseIsNotLost(t *testing.T) {
	for _, progress := range []bool{false, true} {
		bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
			b.putGroup(3)
			b.loseDelivery()
			var refused atomic.Bool
			b.queue.intercept = func(op string, act func() error) error {
				if op == "update" && refused.Load() {
					return queue.ErrReceiptMismatch
				}
				return act()
			}
			o := options()
			o.Poison.MaxLost = 1
			var got items
			var begun atomic.Int32 // of item 0, which loses the lease three times
			l := New(b.queue, way(got.handler(b, func(ctx context.Context, m *Message[job]) error {
				switch {
				case m.Item == 0 && begun.Add(1) <= 3:
					refused.Store(true)
					<-ctx.Done()
					refused.Store(false)
					return ctx.Err()
				case m.Item > 0 && begun.Load() <= 3 && (m.Item == 1 || !progress):
					return errors.New("broken")
				}
				return nil
			})), o)
			b.run(l)
			advance(time.Hour)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Poisoned] != 0 || st.Outcomes[Deleted] != 1 {
				b.Errorf("progress %v: got %d poison messages and %d successes, want none and one; runs: %v", progress, st.Outcomes[Poisoned], st.Outcomes[Deleted], got.counts(3))
			}
		})
	}
}

// An item starts only if its start was recorded. If it cannot be, the others wait too, without an attempt.
func TestAnItemStartsOnlyIfThatIsRecorded(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(5)
		b.loseDelivery()
		updates := 0
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				if updates++; updates == 4 { // after the start of the group and of two items
					return &queue.Error{Kind: queue.ErrInvalid}
				}
			}
			return act()
		}
		var got items
		var inTime atomic.Int32 // items of the delivery whose third start is not recorded
		b.run(New(b.queue, way(got.handler(b, func(_ context.Context, m *Message[job]) error {
			if m.Attempt != 1 {
				b.Errorf("item %d has attempt %d, want 1", m.Item, m.Attempt)
			}
			if m.DequeueCount == 2 {
				inTime.Add(1)
			}
			return nil
		})), options()))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(b, 1, 1, 1, 1, 1)
		if updates != 5 || inTime.Load() != 2 { // the last is the give-back
			b.Errorf("got %d updates and %d items before, want 5 and 2", updates, inTime.Load())
		}
	})
}

// An item whose start cannot be recorded, because another is being saved, does not start after the halt.
func TestAnItemThatWaitsForASaveDoesNotStartAfterTheHalt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putGroup(3)
		b.loseDelivery()
		var saving atomic.Bool
		saved := make(chan struct{})
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && saving.CompareAndSwap(true, false) {
				<-saved
			}
			return act()
		}
		var got items
		l := New(b.queue, EachItem(got.handler(b, func(ctx context.Context, m *Message[job]) error {
			if m.Item == 0 {
				time.Sleep(2 * time.Second) // and then item 2 has its turn
				return nil
			}
			time.Sleep(time.Second)
			saving.Store(true)
			return m.Save(ctx, m.Body)
		}), 2), options())
		b.run(l)
		advance(10 * time.Second)
		l.Halt()
		advance(time.Second)
		close(saved)
		b.mustFinish()
		got.wantCounts(b, 1, 1, 0)
	})
}
