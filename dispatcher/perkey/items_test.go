package perkey_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// groups sends groups of jobs and handles them with an EachItem. The key of a job depends on its number,
// which counts through all groups.
type groups struct {
	*bundle
	of    func(n int) string
	items int // of each group
	each  int // concurrency

	wrap    listener.Middleware[job]                            // between EachItem and perkey; nil for none
	handler func(context.Context, *listener.Message[job]) error // before a handler takes its time; nil for none
	more    listener.Middleware[job]                            // inside of perkey; nil for none
}

func (g *groups) send(n int, takes time.Duration) {
	g.Helper()
	for i := range n {
		jobs := make([]job, g.items)
		for j := range jobs {
			jobs[j] = job{i*g.items + j, takes}
		}
		if _, err := producer.New[job](g.queue, nil).SendGroup(g.Context(), jobs, nil); err != nil {
			g.Fatal(err)
		}
	}
}

// work is the innermost handler.
func (g *groups) work(ctx context.Context, m *listener.Message[job]) error {
	key := g.of(m.Body.N)
	began := g.enter(key)
	defer g.leave(key)
	if g.handler != nil {
		if err := g.handler(ctx, m); err != nil {
			return err
		}
	}
	if !waiting.For(m.Body.Takes, ctx.Done()) {
		return context.Cause(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.done = append(g.done, finished{key, m.Body.N, began, m.Attempt})
	return nil
}

func (g *groups) start() (l *listener.Listener[job], stop func()) {
	g.Helper()
	var around []listener.Middleware[job]
	byNumber := perkey.MiddlewareBy(g.keys, func(m *listener.Message[job]) string { return g.of(m.Body.N) })
	for _, one := range []listener.Middleware[job]{g.wrap, byNumber, g.more} {
		if one != nil {
			around = append(around, one)
		}
	}
	return g.bundle.start(listener.EachItem(listener.Chain(g.work, around...), g.each))
}

// wantOnce checks that so many jobs are done, each once and in its first attempt.
func (g *groups) wantOnce(jobs int) {
	g.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := map[int]bool{}
	for _, f := range g.done {
		if seen[f.n] || f.attempt != 1 {
			g.Errorf("got %+v again, or not in its first attempt", f)
		}
		seen[f.n] = true
	}
	if len(seen) != jobs {
		g.Errorf("jobs done: got %d, want %d", len(seen), jobs)
	}
}

// Items whose key is taken wait in their group while others run. A group with one key takes as long
// as its work, without a give-back. Waiting is not handling: no time-out passes. Before items waited
// so, the groups took the seconds in the comments. The seconds allow for items that wait for a place of
// the EachItem when it is their turn, which depends on the order of goroutines.
func TestItemsOfAKeyWaitInsideTheirGroup(t *testing.T) {
	for name, c := range map[string]struct {
		groups, items, each int
		of                  func(n int) string
		seconds, most       int // most seconds and give-backs
	}{
		"one group, one key":        {1, 200, 8, func(int) string { return "a" }, 200, 0},                       // before: 9910
		"one group, ten keys":       {1, 200, 8, func(n int) string { return fmt.Sprint(n % 10) }, 33, 0},       // before: 25
		"two groups, one key":       {2, 100, 8, func(int) string { return "a" }, 202, 0},                       // before: 5019
		"ten groups, one key":       {10, 20, 8, func(int) string { return "a" }, 230, 250},                     // before: 1019
		"20 groups, five keys":      {20, 50, 8, func(n int) string { return fmt.Sprint(n % 5) }, 230, 400},     // before: 353
		"ten groups, 50 keys":       {10, 100, 8, func(n int) string { return fmt.Sprint(n % 50) }, 45, 30},     // before: 40
		"a key before another":      {1, 40, 8, func(n int) string { return fmt.Sprint(n / 20) }, 21, 0},        // before: 100
		"a hot key":                 {1, 200, 8, func(n int) string { return fmt.Sprint(n * (n % 2)) }, 110, 0}, // before: 1729
		"a hot key, two at once":    {1, 100, 2, func(n int) string { return fmt.Sprint(n * (n % 2)) }, 80, 0},  // before: 50
		"one at a time":             {1, 40, 1, func(n int) string { return fmt.Sprint(n % 3) }, 40, 0},         // before: 40
		"two groups, one at a time": {2, 40, 1, func(n int) string { return fmt.Sprint(n % 3) }, 42, 0},         // before: 40
	} {
		bubble(t, nil, func(b *bundle) {
			g := &groups{bundle: b, of: c.of, items: c.items, each: c.each}
			b.options.Timeout = 15 * time.Second
			g.send(c.groups, time.Second)
			l, stop := g.start()
			begin := time.Now()
			b.until(c.groups*c.items, 2*time.Hour)
			took := int(time.Since(begin) / time.Second)
			advance(time.Second)
			stop()
			snoozed := int(l.State().Outcomes[listener.Snoozed])
			t.Logf("%s: %d s, %d give-backs", name, took, snoozed)
			if took > c.seconds || snoozed > c.most {
				t.Errorf("%s: got %d s and %d give-backs, want at most %d s and %d", name, took, snoozed, c.seconds, c.most)
			}
			if most := c.groups * c.each; b.atOnce > most {
				t.Errorf("%s: got %d handlers at once, want at most %d", name, b.atOnce, most)
			}
			g.wantOnce(c.groups * c.items)
			b.wantFree()
			b.wantEmpty(l)
		})
	}
}

// While another message has the key of some items, the other items of the group run, even with an EachItem
// for one item at a time, and then those with the key. The group is given back at most once.
func TestItemsWhoseKeyAnotherMessageHasLetOthersRun(t *testing.T) {
	for _, wait := range []time.Duration{-1, 0} {
		for _, each := range []int{1, 2, 8} {
			bubble(t, &perkey.Options{Wait: wait}, func(b *bundle) {
				b.send("a", 1000, 15*time.Second)
				_, stop := b.start(b.limited(b.handle))
				advance(time.Second)
				g := &groups{bundle: b, items: 30, each: each, of: func(n int) string {
					if n < 10 {
						return "a"
					}
					return fmt.Sprint(n)
				}}
				b.queue = b.newQueue("groups")
				g.send(1, time.Second)
				l, stopGroups := g.start()
				advance(14 * time.Second)
				others := 0
				for _, f := range b.done {
					if f.key != "a" {
						others++
					}
				}
				if want := min(20, 8*each); others < want || b.count("a") > 1 {
					t.Errorf("wait %v, EachItem of %d: after 14 s got %d other items done and %d of the key, want at least %d and at most 1", wait, each, others, b.count("a"), want)
				}
				b.until(31, 2*time.Minute)
				advance(time.Second)
				stop()
				stopGroups()
				if n := l.State().Outcomes[listener.Snoozed]; n > 3 {
					t.Errorf("wait %v, EachItem of %d: got %d give-backs, want at most 3", wait, each, n)
				}
				g.wantOnce(31)
				b.wantFree()
				b.wantEmpty(l)
			})
		}
	}
}

// A group whose items all wait for another message leaves its slot after Options.Wait.
func TestAGroupWhoseItemsAllWaitIsGivenBack(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.send("a", 1000, 100*time.Second)
		_, stop := b.start(b.limited(b.handle))
		advance(time.Second)
		b.queue = b.newQueue("groups")
		g := &groups{bundle: b, items: 50, each: 3, of: func(int) string { return "a" }}
		g.send(1, time.Second)
		l, stopGroups := g.start()
		advance(8 * time.Second)
		if st := l.State(); st.Running != 0 || st.Outcomes[listener.Snoozed] != 1 {
			t.Errorf("got %d running and %d given back, want 0 and 1", st.Running, st.Outcomes[listener.Snoozed])
		}
		b.until(51, 5*time.Minute)
		stop()
		stopGroups()
		g.wantOnce(51)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// A stop leaves the items that wait, and a lost lease ends their waits. They are handled later, and
// nothing holds a key.
func TestAStopAndALostLeaseEndTheWaits(t *testing.T) {
	for _, lost := range []bool{false, true} {
		bubble(t, nil, func(b *bundle) {
			g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 2) }, items: 20, each: 4}
			b.options.Grace = 500 * time.Millisecond
			b.options.Lease.Visibility = listener.FixedVisibility(5 * time.Second)
			g.send(1, time.Second)
			l, stop := g.start()
			advance(3300 * time.Millisecond)
			want := 6
			if lost {
				if err := b.queue.(queue.Manager).Clear(b.Context()); err != nil {
					t.Fatal(err)
				}
				advance(20 * time.Second)
				want = b.count("")
				if st := l.State(); want > 12 || st.Running != 0 || st.Outcomes[listener.Lost] != 1 {
					t.Errorf("got %d done, %+v, want at most 12 and one lost lease", want, st)
				}
				b.wantFree()
			}
			stop()
			b.wantFree()
			if n := b.count(""); n != want {
				t.Errorf("got %d jobs done, want %d", n, want)
			}
			if lost {
				return
			}
			l, stop = g.start()
			b.until(20, time.Minute)
			advance(time.Second)
			stop()
			g.wantOnce(20)
			b.wantFree()
			b.wantEmpty(l)
		})
	}
}

// Middleware between EachItem and perkey may hold something while its item waits: all items are handled,
// even if two groups share what it holds.
func TestASemaphoreAroundWaitingItems(t *testing.T) {
	for _, sent := range []int{1, 2, 5} {
		bubble(t, nil, func(b *bundle) {
			tokens := make(chan struct{}, 2)
			g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 3) }, items: 40, each: 4}
			g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
				return func(ctx context.Context, m *listener.Message[job]) error {
					tokens <- struct{}{}
					defer func() { <-tokens }()
					return next(ctx, m)
				}
			}
			g.send(sent, time.Second)
			l, stop := g.start()
			b.until(40*sent, time.Hour)
			t.Logf("%d groups: %v", sent, time.Since(b.begin))
			advance(time.Second)
			stop()
			g.wantOnce(40 * sent)
			b.wantFree()
			b.wantEmpty(l)
		})
	}
}

// With the keys of two Keys, one inside of the other, in opposite orders for every other item, an item
// has both, and no two items wait for each other forever.
func TestItemsWithTwoKeys(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		inner, err := perkey.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		by := func(k *perkey.Keys, of int) listener.Middleware[job] {
			return perkey.MiddlewareBy(k, func(m *listener.Message[job]) string { return fmt.Sprint(of, " ", m.Body.N%of) })
		}
		g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 2) }, items: 20, each: 4}
		one := listener.Chain(g.work, by(b.keys, 2), by(inner, 5))
		other := listener.Chain(g.work, by(inner, 5), by(b.keys, 2))
		g.send(2, time.Second)
		l, stop := b.start(listener.EachItem(func(ctx context.Context, m *listener.Message[job]) error {
			if m.Body.N%4 < 2 {
				return one(ctx, m)
			}
			return other(ctx, m)
		}, 4))
		b.until(40, 20*time.Minute)
		advance(time.Second)
		stop()
		g.wantOnce(40)
		b.wantFree()
		b.wantEmpty(l)
		if s := inner.State(); s.Held+s.Waiting > 0 {
			t.Errorf("inner keys: got %+v, want none held", s)
		}
	})
}

// Handlers with two keys one after the other, such as the two accounts of a transfer, do not wait for
// each other.
func TestItemsWithOneKeyAfterAnother(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		const accounts = 3
		leg := func(to int) listener.Handler[job] {
			of := func(m *listener.Message[job]) string {
				return fmt.Sprint((m.Body.N*m.Body.N + to*(1+m.Body.N%2)) % accounts)
			}
			return perkey.MiddlewareBy(b.keys, of)(func(_ context.Context, m *listener.Message[job]) error {
				b.enter(of(m))
				defer b.leave(of(m))
				time.Sleep(m.Body.Takes)
				return nil
			})
		}
		g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint("job ", n) }, items: 30, each: 4}
		g.send(2, time.Second)
		l, stop := b.start(listener.EachItem(listener.All(leg(0), leg(1), g.work), 4))
		b.until(60, 10*time.Minute)
		t.Logf("60 transfers: %v", time.Since(b.begin))
		advance(time.Second)
		stop()
		g.wantOnce(60)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// leaveBehind calls a handler and does not wait for it any longer.
func leaveBehind(ctx context.Context, m *listener.Message[job], next listener.Handler[job], after time.Duration) error {
	done := make(chan error, 1)
	go func() { done <- next(context.WithoutCancel(ctx), m) }()
	select {
	case err := <-done:
		return err
	case <-time.After(after):
		return errors.New("left behind")
	}
}

// A handler that middleware has left behind keeps its key, and does not keep the group.
func TestAHandlerLeftBehindDoesNotKeepItsGroup(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, of: func(int) string { return "a" }, items: 5, each: 2}
		end := make(chan struct{})
		g.handler = func(_ context.Context, m *listener.Message[job]) error {
			if m.Body.N == 0 && m.Attempt == 1 {
				<-end
			}
			return nil
		}
		g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				if m.Body.N > 0 {
					return next(ctx, m)
				}
				return leaveBehind(ctx, m, next, 3*time.Second)
			}
		}
		g.send(1, time.Second)
		l, stop := g.start()
		advance(30 * time.Second)
		if st := l.State(); st.Outcomes[listener.Retried] == 0 || b.count("") > 1 || b.keys.State().Held != 1 {
			t.Errorf("got %d retried and %d done, %+v, want some, at most 1, and 1 key held", st.Outcomes[listener.Retried], b.count(""), b.keys.State())
		}
		close(end)
		b.until(5, 15*time.Minute)
		advance(time.Second)
		stop()
		b.wantFree()
	})
}

// Items that middleware has left behind while they wait do not run, and take nothing from the others.
func TestItemsThatAreLeftBehindWhileTheyWait(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, items: 12, each: 8, of: func(n int) string { return fmt.Sprint(max(n, 5)) }}
		var left, calls atomic.Int64
		g.handler = func(context.Context, *listener.Message[job]) error {
			calls.Add(1)
			return nil
		}
		g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				if m.Attempt > 1 || m.Body.N > 5 || m.Body.N == 0 {
					return next(ctx, m)
				}
				time.Sleep(time.Millisecond) // the first item has the key
				err := leaveBehind(ctx, m, next, time.Second)
				if err != nil {
					left.Add(1)
				}
				return err
			}
		}
		g.send(1, 5*time.Second)
		l, stop := g.start()
		b.until(12, 5*time.Minute)
		advance(time.Minute)
		stop()
		if left.Load() < 4 || calls.Load() != 12 || l.State().Outcomes[listener.Deleted] != 1 {
			t.Errorf("got %d left behind, %d calls, %d groups succeeded; want at least 4, 12, and 1", left.Load(), calls.Load(), l.State().Outcomes[listener.Deleted])
		}
		b.wantFree()
	})
}

// When a stuck handler was given up, so that its slot is free for another message, no item that waits
// begins.
func TestNoItemBeginsAfterAStuckHandlerWasGivenUp(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, items: 6, each: 3, of: func(n int) string { return fmt.Sprint(min(n, 1)) }}
		end, calls := make(chan struct{}), atomic.Int64{}
		g.handler = func(_ context.Context, m *listener.Message[job]) error {
			calls.Add(1)
			if m.Body.N == 0 && m.DequeueCount == 1 {
				<-end
			}
			return nil
		}
		b.options.Timeout, b.options.Lease.StuckAfter, b.options.Lease.GiveUp = 3*time.Second, time.Second, true
		b.options.Lease.Visibility = listener.FixedVisibility(time.Minute)
		g.send(1, 2500*time.Millisecond)
		_, stop := g.start()
		advance(30 * time.Second)
		if n := calls.Load(); n != 3 {
			t.Errorf("got %d calls, want those 3 that began before 4 s", n)
		}
		close(end)
		b.until(6, 5*time.Minute)
		advance(time.Minute)
		stop()
		b.wantFree()
	})
}

// Middleware that calls the handler again for an item that was postponed does not exceed the
// concurrency of the EachItem.
func TestAnItemThatIsTriedAgainKeepsTheConcurrency(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.send("a", 1000, 30*time.Second)
		_, stop := b.start(b.limited(b.handle))
		advance(time.Second)
		b.queue = b.newQueue("groups")
		g := &groups{bundle: b, items: 30, each: 2, of: func(n int) string { return []string{"a", "b", fmt.Sprint(n)}[n%3] }}
		g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				err := next(ctx, m)
				for range 100 {
					if !errors.Is(err, perkey.ErrBusy) {
						return err
					}
					time.Sleep(time.Second)
					err = next(ctx, m)
				}
				return err
			}
		}
		g.send(1, time.Second)
		l, stopGroups := g.start()
		b.until(31, 10*time.Minute)
		advance(time.Second)
		stop()
		stopGroups()
		if b.atOnce > 3 {
			t.Errorf("got %d handlers at once, want at most 2 and that of the other message", b.atOnce)
		}
		if n := l.State().Outcomes[listener.Snoozed]; n != 0 {
			t.Errorf("got %d give-backs, want 0", n)
		}
		g.wantOnce(31)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// Items that cannot be decoded take nothing from the others.
func TestItemsThatCannotBeDecodedTakeNoPlace(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		items := []any{"x", job{0, time.Second}, "y", "z", job{1, time.Second}}
		if _, err := producer.New[any](b.queue, nil).SendGroup(b.Context(), items, nil); err != nil {
			t.Fatal(err)
		}
		g := &groups{bundle: b, of: func(int) string { return "a" }, each: 1}
		_, stop := g.start()
		advance(time.Minute)
		stop()
		if n := b.count("a"); n != 2 {
			t.Errorf("got %d items done, want 2", n)
		}
		b.wantFree()
	})
}

// A bounded number of items of a group waits, and all are handled.
func TestTheItemsThatWaitAreBounded(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, of: func(int) string { return "a" }, items: 1500, each: 2}
		var inside, most atomic.Int64
		g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				defer inside.Add(-1)
				return next(ctx, m)
			}
		}
		g.send(1, time.Millisecond)
		l, stop := g.start()
		b.until(1500, time.Minute)
		advance(time.Second)
		stop()
		if n := most.Load(); n != 1024+2 {
			t.Errorf("got %d items at once in the middleware, want 1026", n)
		}
		g.wantOnce(1500)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// Groups and jobs with one key take turns: the items of a long group do not keep a job waiting.
func TestAJobHasItsTurnAmongTheItemsOfAGroup(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, of: func(int) string { return "a" }, items: 100, each: 8}
		g.send(1, time.Second)
		l, stop := g.start()
		advance(10 * time.Second)
		b.send("a", 1000, time.Second)
		advance(5 * time.Second)
		b.mu.Lock()
		if !slices.ContainsFunc(b.done, func(f finished) bool { return f.n == 1000 }) {
			t.Errorf("5 s after it was sent the job is not done: %v", b.done)
		}
		b.mu.Unlock()
		b.until(101, 5*time.Minute)
		advance(time.Second)
		stop()
		g.wantOnce(101)
		b.wantFree()
		b.wantEmpty(l)
	})
}
