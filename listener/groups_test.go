package listener

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// putGroup sends a group of jobs numbered from 0.
func (b *bundle) putGroup(n int) producer.Sent {
	b.Helper()
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i].N = i
	}
	sent, err := producer.New[job](b.queue.Queue, nil).SendGroup(b.Context(), jobs, &producer.SendOptions{JobID: "group"})
	if err != nil {
		b.Fatal(err)
	}
	return sent
}

// items counts the calls of a handler by item.
type items struct {
	mu     sync.Mutex
	calls  map[int]int // guarded by mu
	at     int         // handlers running; guarded by mu
	atMost int         // most handlers that ran at once; guarded by mu
}

// handler counts, and returns what h returns.
func (i *items) handler(t testing.TB, h Handler[job]) Handler[job] {
	i.calls = map[int]int{}
	return func(ctx context.Context, m *Message[job]) error {
		if m.Item != m.Body.N || m.Items == 0 || m.Job != "group" {
			t.Errorf("job %d is item %d of %d of job %q", m.Body.N, m.Item, m.Items, m.Job)
		}
		if d, ok := DeliveryFrom(ctx); !ok || d.Item != m.Item || d.Items != m.Items || d.Job != "group" {
			t.Errorf("item %d: the context has the delivery %+v", m.Item, d)
		}
		i.mu.Lock()
		i.calls[m.Item]++
		i.at++
		i.atMost = max(i.atMost, i.at)
		i.mu.Unlock()
		defer func() {
			i.mu.Lock()
			i.at--
			i.mu.Unlock()
		}()
		return h(ctx, m)
	}
}

// counts returns the calls of each of n items.
func (i *items) counts(n int) []int {
	i.mu.Lock()
	defer i.mu.Unlock()
	counts := make([]int, n)
	for item, calls := range i.calls {
		counts[item] = calls
	}
	return counts
}

// ways are the two ways in which a handler handles groups.
var ways = map[string]func(Handler[job]) Handler[job]{
	"one by one": func(h Handler[job]) Handler[job] { return h },
	"Each":       func(h Handler[job]) Handler[job] { return EachItem(h, 3) },
}

// bothWays runs a test with a plain handler and with one made by EachItem.
func bothWays(t *testing.T, f func(b *bundle, way func(Handler[job]) Handler[job])) {
	for _, name := range slices.Sorted(maps.Keys(ways)) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) { f(b, ways[name]) })
		})
	}
}

// wantCounts checks how often each item was handled.
func (i *items) wantCounts(t testing.TB, want ...int) {
	t.Helper()
	if got := i.counts(len(want)); !slices.Equal(got, want) {
		t.Errorf("the items were handled %v times, want %v", got, want)
	}
}

// wantRequests checks how many requests of an operation were sent.
func (b *bundle) wantRequests(op string, want int) {
	b.Helper()
	if got := len(b.queue.sent(op)); got != want {
		b.Errorf("got %d requests to %s, want %d", got, op, want)
	}
}

// O-04: every item of a group is a job for the handler, and the group is one message.
func TestAGroupIsHandledItemByItem(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(7)
		var got items
		b.run(New(b.queue, way(got.handler(t, func(context.Context, *Message[job]) error {
			time.Sleep(time.Second)
			return nil
		})), options()))
		advance(time.Minute)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1, 1, 1, 1, 1)
		if b.depth(b.queue) != 0 {
			t.Error("the message was not deleted")
		}
		b.wantRequests("update", 0)
		b.wantRequests("delete", 1)
	})
}

// A bound on the items that are handled at once is kept, and used.
func TestEachHandlesAsManyItemsAtOnceAsItMay(t *testing.T) {
	for _, bound := range []int{1, 3, 7, 100} {
		bubble(t, func(b *bundle) {
			b.putGroup(7)
			var got items
			b.run(New(b.queue, EachItem(got.handler(t, func(context.Context, *Message[job]) error {
				time.Sleep(time.Second)
				return nil
			}), bound), options()))
			advance(time.Minute)
			b.mustFinish()
			got.wantCounts(t, 1, 1, 1, 1, 1, 1, 1)
			if want := min(bound, 7); got.atMost != want {
				t.Errorf("with %d at once: got %d, want %d", bound, got.atMost, want)
			}
		})
	}
}

// One failure does not redo the rest: what is done is recorded with the give-back.
func TestOnlyTheItemsThatAreLeftAreRetried(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(20)
		var got items
		o := options()
		errs := make(chan error, 10)
		o.OnError = func(err error) { errs <- err }
		b.run(New(b.queue, way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			switch {
			case m.Item == 3 && m.Attempt <= 2, m.Item == 19 && m.Attempt == 1:
				return fmt.Errorf("item %d is broken", m.Item)
			case m.Item == 5 && m.Attempt == 1:
				panic("item 5 panics")
			}
			return nil
		})), o))
		const first = "of 20 items 3 ended with errors; item 3: item 3 is broken; item 5: handler panicked: item 5 panics; item 19: "
		if err := <-errs; !strings.Contains(err.Error(), first) {
			t.Errorf("got error %v, want %q", err, first)
		}
		advance(time.Minute)
		b.mustFinish()
		want := slices.Repeat([]int{1}, 20)
		want[3], want[5], want[19] = 3, 2, 2
		got.wantCounts(t, want...)
		b.wantRequests("update", 2)
		b.wantRequests("delete", 1)
	})
}

// What an item asks for holds for it, and the message is settled once.
func TestEveryItemHasAResultOfItsOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(6)
		var got items
		l := New(b.queue, way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			n := got.counts(6)[m.Item]
			switch {
			case m.Item == 1:
				return Discard(errors.New("not wanted"))
			case m.Item == 2:
				return Poison(errors.New("no use"))
			case m.Item == 3 && n <= 7: // more often than there are attempts
				return Snooze(time.Minute)
			case m.Item == 4 && n == 1:
				return Retry(time.Minute, errors.New("too early"))
			case m.Item == 5:
				return errors.New("always broken")
			}
			return nil
		})), options())
		b.run(l)
		advance(24 * time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1, 8, 2, 5)
		if s := l.State(); s.Outcomes[Poisoned] != 1 || s.Outcomes[Retried] != 4 || s.Outcomes[Snoozed] != 3 || b.depth(b.queue) != 0 {
			t.Errorf("got %+v, want one poisoned, 4 retries and 3 snoozes", s)
		}
		records := b.poisoned()
		if len(records) != 1 {
			t.Fatalf("got %d messages in the poison queue, want 1", len(records))
		}
		r, err := poison.ParseRecord(records[0].Text)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _, err := envelope.Open(r.Text, codec.Envelope, envelope.Groups)
		if err != nil || head.Items != 6 || head.Done != envelope.NewItemSet(6, func(i int) bool { return i != 2 && i != 5 }) || head.Failed != "" {
			t.Errorf("the poison queue has %+v, %v; want items 2 and 5 left", head, err)
		}
	})
}

// A redrive handles what failed and not what was done.
func TestARedriveOfAGroupHandlesWhatFailed(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(9)
		var got items
		repaired := false
		h := way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if !repaired && m.Item == 4 {
				return Poison(errors.New("no use"))
			}
			if !repaired && m.Item == 8 {
				return errors.New("broken")
			}
			return nil
		}))
		b.run(New(b.queue, h, options()))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1, 1, 1, 1, 1, 1, 5)

		repaired = true
		report, err := poison.Redrive(b.Context(), b.queue, nil)
		if err != nil || report.Done != 1 {
			t.Fatalf("got %+v, %v, want one message redriven", report, err)
		}
		b.run(New(b.queue, h, options()))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, 1, 1, 1, 1, 2, 1, 1, 1, 6)
		if b.depth(b.queue) != 0 || len(b.poisoned()) != 0 {
			t.Error("something is left")
		}
	})
}

// An item that cannot be decoded is poison by itself and harms no other.
func TestAnItemThatCannotBeDecodedHarmsNoOther(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		g := envelope.Group{[]byte(`{"N":0}`), []byte(`{"N":"one"}`), []byte(`{"N":2}`)}
		text, _ := envelope.Seal(envelope.Head{ID: "group", Items: 3}, g.Encode(), codec.Envelope)
		b.putText(text)
		var got items
		b.run(New(b.queue, way(got.handler(t, func(context.Context, *Message[job]) error { return nil })), options()))
		advance(time.Minute)
		b.mustFinish()
		got.wantCounts(t, 1, 0, 1)
		records := b.poisoned()
		if len(records) != 1 {
			t.Fatalf("got %d messages in the poison queue, want 1", len(records))
		}
		if r, err := poison.ParseRecord(records[0].Text); err != nil || r.Reason != poison.ReasonUndecodable || !strings.Contains(r.Error, "item 1: ") {
			t.Errorf("got %+v, %v, want item 1 undecodable", r, err)
		}
	})
}

// A group whose frame is broken is poison as a whole: nobody knows where its items begin.
func TestABrokenGroupIsPoison(t *testing.T) {
	for _, text := range []string{"millrace/2?gr=2\n1:{}\n", "millrace/2?gr=3\n2:{}\n2:{}\n", "millrace/2?gr=1\n{}"} {
		bubble(t, func(b *bundle) {
			b.putText(text)
			b.run(New(b.queue, EachItem(func(context.Context, *Message[job]) error {
				t.Error("handled")
				return nil
			}, 2), options()))
			advance(time.Minute)
			b.mustFinish()
			records := b.poisoned()
			if len(records) != 1 {
				t.Fatalf("got %d messages in the poison queue, want 1", len(records))
			}
			if r, err := poison.ParseRecord(records[0].Text); err != nil || r.Reason != poison.ReasonUndecodable || r.Text != text {
				t.Errorf("got %+v, %v, want it undecodable and unchanged", r, err)
			}
		})
	}
}

// The time-out is that of an item, and ends no other.
func TestTheTimeoutOfAnItemEndsNoOther(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(5)
		var got items
		o := options()
		o.Timeout = 10 * time.Second
		o.RetryDelay = func(int, error) time.Duration { return 0 }
		b.run(New(b.queue, way(got.handler(t, func(ctx context.Context, m *Message[job]) error {
			if at, ok := ctx.Deadline(); !ok || time.Until(at) != 10*time.Second {
				t.Errorf("item %d has %v to its deadline", m.Item, time.Until(at))
			}
			if m.Item == 1 && m.Attempt == 1 {
				<-ctx.Done()
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), ErrTimeout) {
					t.Errorf("the context ended with %v, %v", ctx.Err(), context.Cause(ctx))
				}
				return ctx.Err()
			}
			time.Sleep(9 * time.Second)
			return ctx.Err()
		})), o))
		advance(5 * time.Minute)
		b.mustFinish()
		got.wantCounts(t, 1, 2, 1, 1, 1)
	})
}

// What is done rides on the renewals: when a worker dies, the next one repeats only what was done
// since the last renewal.
func TestARenewalRecordsWhatIsDone(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(30)
		var dead atomic.Bool
		b.queue.intercept = func(_ string, act func() error) error {
			if dead.Load() {
				return &queue.Error{Kind: queue.ErrUnavailable}
			}
			return act()
		}
		var got items
		o := fixed(10 * time.Second)
		h := way(got.handler(t, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}))
		l := New(b.queue, h, o)
		b.run(l)
		advance(8*time.Second + time.Millisecond)
		before := got.counts(30)
		recorded := 0
		if renewals := b.queue.sent("update"); len(renewals) != 1 {
			t.Fatalf("got %d updates, want one renewal", len(renewals))
		} else {
			recorded = int(renewals[0].at.Sub(b.begin) / time.Second) // a second an item
		}
		dead.Store(true)
		l.Halt()
		b.mustFinish()
		dead.Store(false)
		advance(time.Minute)
		b.run(New(b.queue, h, o))
		advance(time.Hour)
		b.mustFinish()
		repeated, at := 0, 1
		for i, n := range got.counts(30) {
			repeated += n - 1
			if n == 0 {
				t.Errorf("item %d was not handled", i)
			}
		}
		if got.atMost == 3 {
			at = 3
		}
		handled := 0
		for _, n := range before {
			handled += n
		}
		if most := handled - at*recorded; recorded < 5 || repeated > most || repeated == 0 {
			t.Errorf("%d items had begun, %d were repeated; want at most %d", handled, repeated, most)
		}
		if b.depth(b.queue) != 0 {
			t.Error("something is left")
		}
	})
}

// A stop gives a group back with what is done of it, and without an attempt.
func TestAStopLeavesTheItemsThatWereNotHandled(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(9)
		var got items
		o := options()
		o.Grace = -1
		h := way(got.handler(t, func(ctx context.Context, m *Message[job]) error {
			if m.Attempt != 1 {
				t.Errorf("item %d has attempt %d", m.Item, m.Attempt)
			}
			if m.Item < 3 || got.counts(9)[m.Item] > 1 {
				return nil
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Minute):
				return nil
			}
		}))
		l := New(b.queue, h, o)
		b.run(l)
		advance(time.Second)
		b.mustFinish()
		if l.State().Outcomes[Returned] != 1 {
			t.Errorf("got %+v, want the message given back", l.State())
		}
		b.run(New(b.queue, h, o))
		advance(10 * time.Minute)
		b.mustFinish()
		for i, n := range got.counts(9) {
			if i < 3 && n != 1 || n < 1 || n > 2 {
				t.Errorf("item %d was handled %d times", i, n)
			}
		}
		if b.depth(b.queue) != 0 {
			t.Error("something is left")
		}
	})
}
