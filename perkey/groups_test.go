package perkey_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/perkey"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/producer"
)

// sendGroup sends jobs numbered from 0 in one message.
func (b *bundle) sendGroup(key string, n int, takes time.Duration) {
	b.Helper()
	jobs := make([]job, n)
	for i := range jobs {
		jobs[i] = job{i, takes}
	}
	if _, err := producer.New[job](b.queue, nil).SendGroup(b.Context(), jobs, &producer.SendOptions{Key: key}); err != nil {
		b.Fatal(err)
	}
}

// The items of a group have the key of their message. Two groups and a job of one key take turns, item by item,
// whether items of a group may run at once or not.
func TestItemsOfGroupsTakeTurns(t *testing.T) {
	for name, way := range map[string]func(*bundle) listener.Handler[job]{
		"plain":       func(b *bundle) listener.Handler[job] { return b.limited(b.handle) },
		"inside Each": func(b *bundle) listener.Handler[job] { return listener.Each(b.limited(b.handle), 3) },
	} {
		for _, takes := range []time.Duration{0, 100 * time.Millisecond, 20 * time.Second} {
			bubble(t, nil, func(b *bundle) {
				b.sendGroup("a", 5, takes)
				b.sendGroup("a", 5, takes)
				b.send("a", 0, takes)
				l, stop := b.start(way(b))
				b.until(11, time.Hour)
				stop()
				b.wantFree()
				b.wantEmpty(l)
				if b.count("a") != 11 {
					t.Errorf("%s, %v: got %d items and jobs done, want 11", name, takes, b.count("a"))
				}
			})
		}
	}
}

// Each inside of the middleware would run the items of a key at once: it fails before any handler
// runs, for jobs in groups and others, and says what to write instead.
func TestEachInsideOfTheMiddlewareFails(t *testing.T) {
	for name, grouped := range map[string]bool{"groups": true, "single jobs": false} {
		for key, option := range map[string]string{"with a key": "a", "without a key": ""} {
			bubble(t, nil, func(b *bundle) {
				if grouped {
					b.sendGroup(option, 8, time.Second)
				} else {
					b.send(option, 0, time.Second)
				}
				var reported string
				b.options.OnError = func(err error) { reported = err.Error() }
				l, stop := b.start(b.limited(listener.Each(b.handle, 8)))
				advance(30 * time.Second)
				stop()
				b.mu.Lock()
				t.Logf("%s %s: %d handlers of one key at once", name, key, b.atOnce)
				b.mu.Unlock()
				if st := l.State(); b.count("") != 0 || b.atOnce != 0 || st.Retried == 0 || st.Succeeded != 0 {
					t.Errorf("%s %s: got %d jobs done, %d handlers at once, %d retried; want 0, 0, some", name, key, b.count(""), b.atOnce, st.Retried)
				}
				if !strings.Contains(reported, "listener.Each(perkey.Middleware[Job](keys)(handle), n)") {
					t.Errorf("%s %s: got error %q, want what to write instead", name, key, reported)
				}
				b.wantFree()
			})
		}
	}
}

// A plain handler with a key beside one made by Each is no wrong order.
func TestEachBesideTheMiddleware(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.send("a", 0, time.Second)
		first := b.limited(func(context.Context, *listener.Message[job]) error { return nil })
		l, stop := b.start(listener.All(first, listener.Each(b.handle, 8)))
		b.until(1, time.Minute)
		stop()
		b.wantFree()
		b.wantEmpty(l)
	})
}

// groups sends groups of jobs that take a second, and handles them with an Each. The key of a job is
// what the function makes of its number in all groups.
type groups struct {
	*bundle
	of    func(n int) string
	items int // of each group
	each  int

	wrap    listener.Middleware[job]                                     // between Each and perkey; nil for none
	handler func(context.Context, *listener.Message[job]) error          // nil for one that takes its time
	more    func(listener.Handler[job]) listener.Handler[job]            // inside of perkey; nil for none
	keyFunc func(of func(n int) string, m *listener.Message[job]) string // nil for of
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

func (g *groups) start() (l *listener.Listener[job], stop func()) {
	g.Helper()
	h := func(ctx context.Context, m *listener.Message[job]) error {
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
	if g.more != nil {
		h = g.more(h)
	}
	h = perkey.MiddlewareBy(g.keys, func(m *listener.Message[job]) string {
		if g.keyFunc != nil {
			return g.keyFunc(g.of, m)
		}
		return g.of(m.Body.N)
	})(h)
	if g.wrap != nil {
		h = g.wrap(h)
	}
	return g.bundle.start(listener.Each(h, g.each))
}

// wantOrder checks that the jobs of each key in each group ended in the order of the group, and each
// once.
func (g *groups) wantOrder(jobs int) {
	g.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	last, seen := map[string]int{}, map[int]bool{}
	for _, f := range g.done {
		line := fmt.Sprint(f.n/g.items, " ", f.key)
		if before, found := last[line]; found && before > f.n && f.key != "" {
			g.Errorf("key %q: job %d ended after job %d of its group", f.key, f.n, before)
		}
		if last[line] = f.n; seen[f.n] || f.attempt != 1 {
			g.Errorf("got %+v again, or not in its first attempt", f)
		}
		seen[f.n] = true
	}
	if len(seen) != jobs {
		g.Errorf("jobs done: got %d, want %d", len(seen), jobs)
	}
}

// The items of a group with one key run one after the other, in order, and wait in their group: the
// message is not given back, and no second is lost. Waiting is not handling: no time-out passes.
func TestItemsOfAKeyWaitInsideTheirGroup(t *testing.T) {
	for name, c := range map[string]struct {
		groups, items int
		of            func(n int) string
		seconds, most int // most give-backs
	}{
		"one group, one key":      {1, 200, func(int) string { return "a" }, 200, 0},
		"one group, ten keys":     {1, 200, func(n int) string { return fmt.Sprint(n % 10) }, 25, 0},
		"two groups, one key":     {2, 100, func(int) string { return "a" }, 200, 0},
		"ten groups, one key":     {10, 20, func(int) string { return "a" }, 210, 200},
		"20 groups, five keys":    {20, 50, func(n int) string { return fmt.Sprint(n % 5) }, 220, 300},
		"ten groups, 50 keys":     {10, 100, func(n int) string { return fmt.Sprint(n % 50) }, 22, 0},
		"a long line before more": {1, 40, func(n int) string { return fmt.Sprint(n / 20) }, 20, 0},
	} {
		bubble(t, nil, func(b *bundle) {
			g := &groups{bundle: b, of: c.of, items: c.items, each: 8}
			b.options.Timeout = 15 * time.Second
			g.send(c.groups, time.Second)
			l, stop := g.start()
			begin := time.Now()
			b.until(c.groups*c.items, 2*time.Hour)
			took := int(time.Since(begin) / time.Second)
			advance(time.Second)
			t.Logf("%s: %d s for %d s of work, %d give-backs", name, took, c.seconds, l.State().Snoozed)
			if snoozed := int(l.State().Snoozed); took > c.seconds+2 || snoozed > c.most {
				t.Errorf("%s: got %d s and %d give-backs, want at most %d s and %d", name, took, snoozed, c.seconds+2, c.most)
			}
			stop()
			g.wantOrder(c.groups * c.items)
			b.wantFree()
			b.wantEmpty(l)
		})
	}
}

// While another job has the key of some items, the other items of the group run, even with an Each
// for one item at a time, and then those with the key, in order.
func TestItemsWhoseKeyIsHeldElsewhereLetOthersGoFirst(t *testing.T) {
	for _, each := range []int{1, 2, 8} {
		bubble(t, nil, func(b *bundle) {
			b.send("a", 0, 15*time.Second)
			_, stop1 := b.start(b.limited(b.handle))
			advance(time.Second)
			stopped := make(chan struct{})
			go func() { stop1(); close(stopped) }()
			advance(time.Second)
			g := &groups{bundle: b, items: 30, each: each, of: func(n int) string {
				if n < 10 {
					return "a"
				}
				return fmt.Sprint(n)
			}}
			b.done = nil
			g.send(1, time.Second)
			l, stop := g.start()
			b.until(31, 2*time.Minute)
			stop()
			<-stopped
			b.mu.Lock()
			b.done = slices.DeleteFunc(b.done, func(f finished) bool { return f.key == "a" && f.began < 2*time.Second })
			firsts := 0
			for _, f := range b.done[:10] {
				if f.key != "a" {
					firsts++
				}
			}
			b.mu.Unlock()
			if firsts < 10 {
				t.Errorf("Each of %d: of the first 10 items %d have other keys, want all", each, firsts)
			}
			if n := l.State().Snoozed; n > 1 {
				t.Errorf("Each of %d: got %d give-backs, want at most 1", each, n)
			}
			g.wantOrder(30)
			b.wantFree()
		})
	}
}

// An item runs when its key is free, while another of its group still runs for a minute: after it was
// held outside of the group, and even if the middleware returns late.
func TestAnItemDoesNotWaitForItemsOfOtherKeys(t *testing.T) {
	for name, held := range map[string]bool{"held outside": true, "held by an earlier item": false} {
		bubble(t, nil, func(b *bundle) {
			g := &groups{bundle: b, items: 3, each: 3, of: func(n int) string { return []string{"a", "a", "b"}[n] }}
			jobs := 3
			if held {
				jobs++
				g.each = 2 // so that the first item lets others go first
				b.send("a", 0, 2*time.Second)
				_, stop := b.start(b.limited(b.handle))
				advance(time.Second)
				go stop()
				advance(time.Millisecond)
			}
			g.handler = func(_ context.Context, m *listener.Message[job]) error {
				if m.Body.N == 2 {
					time.Sleep(time.Minute)
				}
				return nil
			}
			g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
				return func(ctx context.Context, m *listener.Message[job]) error {
					if held && m.Body.N == 1 {
						time.Sleep(100 * time.Millisecond) // the first item asks first
					}
					err := next(ctx, m)
					if err != nil && !held {
						time.Sleep(2 * time.Second)
					}
					return err
				}
			}
			g.send(1, time.Second)
			_, stop := g.start()
			advance(10 * time.Second)
			if n := b.count("a"); n != jobs-1 {
				t.Errorf("%s: after 10 s: got %d jobs of the key done, want %d", name, n, jobs-1)
			}
			b.until(jobs, 2*time.Minute)
			stop()
			b.wantFree()
		})
	}
}

// Items whose keys are all held outside of their group are asked a few times and then wait or are
// given back, even if middleware around them takes a moment. They do not ask again and again.
func TestItemsWithHeldKeysDoNotAskForEver(t *testing.T) {
	for name, delays := range map[string][2]time.Duration{
		"before": {time.Millisecond, 0}, "after": {0, time.Millisecond}, "both": {time.Millisecond, time.Millisecond},
	} {
		for _, each := range []int{1, 2, 3, 8} {
			bubble(t, nil, func(b *bundle) {
				const items = 6
				for i := range items {
					b.send(fmt.Sprint(i), 1000+i, 10*time.Minute)
				}
				_, stopHolders := b.start(b.limited(b.handle))
				advance(time.Minute)
				stopped := make(chan struct{})
				go func() { stopHolders(); close(stopped) }()
				advance(time.Second)

				g := &groups{bundle: b, items: items, each: each, of: func(n int) string { return fmt.Sprint(n) }}
				var calls atomic.Int64
				g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
					return func(ctx context.Context, m *listener.Message[job]) error {
						calls.Add(1)
						time.Sleep(delays[0])
						err := next(ctx, m)
						time.Sleep(delays[1])
						return err
					}
				}
				g.send(1, 0)
				l, stop := g.start()
				advance(2 * time.Second)
				if n := calls.Load(); n > 3*items*items || l.State().Snoozed == 0 {
					t.Errorf("%s, Each of %d: got %d calls and %d give-backs in 2 s, want at most %d and some", name, each, n, l.State().Snoozed, 3*items*items)
				}
				stop()
				<-stopped
				b.wantFree()
			})
		}
	}
}

// The order of a key stays if an item is given back before its key is known: by middleware outside of
// perkey, or for another key.
func TestAnItemThatIsGivenBackStaysBeforeThoseOfItsKey(t *testing.T) {
	for _, each := range []int{1, 4} {
		bubble(t, nil, func(b *bundle) {
			g := &groups{bundle: b, of: func(int) string { return "a" }, items: 8, each: each}
			var postponed atomic.Bool
			g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
				return func(ctx context.Context, m *listener.Message[job]) error {
					if m.Body.N == 0 && postponed.CompareAndSwap(false, true) {
						return listener.Postpone(time.Second, errors.New("not yet"))
					}
					time.Sleep(time.Millisecond) // the first item is given back before
					return next(ctx, m)
				}
			}
			g.send(1, time.Second)
			l, stop := g.start()
			b.until(8, time.Minute)
			advance(time.Second)
			stop()
			g.wantOrder(8)
			b.wantFree()
			b.wantEmpty(l)
		})
	}
}

// A stop leaves the items that wait. They are handled later, in order, and nothing holds a key.
func TestAStopLeavesItemsThatWait(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 2) }, items: 20, each: 4}
		b.options.Grace = 500 * time.Millisecond
		g.send(1, time.Second)
		_, stop := g.start()
		advance(3300 * time.Millisecond)
		stop()
		b.wantFree()
		if n := b.count(""); n != 6 {
			t.Errorf("before the stop: got %d jobs done, want 6", n)
		}
		l, stop := g.start()
		b.until(20, time.Minute)
		advance(time.Second)
		stop()
		g.wantOrder(20)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// Middleware between Each and perkey may hold something while its item waits: waiting items give it
// back, and the one that runs is never behind them.
func TestASemaphoreAroundWaitingItems(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		tokens := make(chan struct{}, 2)
		g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 2) }, items: 40, each: 8}
		var calls atomic.Int64
		g.wrap = func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				calls.Add(1)
				tokens <- struct{}{}
				defer func() { <-tokens }()
				return next(ctx, m)
			}
		}
		g.send(1, time.Second)
		l, stop := g.start()
		b.until(40, 22*time.Second)
		advance(time.Second)
		stop()
		if n := calls.Load(); n > 40+8 {
			t.Errorf("calls for 40 items: got %d, want one each, and at most one more for those that began together", n)
		}
		g.wantOrder(40)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// With the keys of two Keys, one inside of the other, an item waits for both, in order.
func TestItemsWithTwoKeys(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		other, err := perkey.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		var atOnce, most int
		g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 8) }, items: 40, each: 8}
		g.more = perkey.MiddlewareBy(other, func(m *listener.Message[job]) string { return fmt.Sprint(m.Body.N % 2) })
		g.handler = func(context.Context, *listener.Message[job]) error {
			b.mu.Lock()
			atOnce++
			most = max(most, atOnce)
			b.mu.Unlock()
			time.Sleep(time.Second)
			b.mu.Lock()
			atOnce--
			b.mu.Unlock()
			return nil
		}
		g.send(2, 0)
		l, stop := g.start()
		b.until(80, 60*time.Second)
		advance(time.Second)
		stop()
		if most != 2 {
			t.Errorf("handlers at once: got %d, want 2", most)
		}
		g.wantOrder(80)
		b.wantFree()
		b.wantEmpty(l)
	})
}

// A function that panics or ends its goroutine for one item is a failed attempt of this item, and
// keeps no other from its turn.
func TestAKeyThatCannotBeToldFailsItsItem(t *testing.T) {
	for name, fault := range map[string]func(){"panic": func() { panic("key") }, "Goexit": runtime.Goexit} {
		bubble(t, nil, func(b *bundle) {
			b.options.Poison.MaxAttempts = 1
			g := &groups{bundle: b, of: func(n int) string { return fmt.Sprint(n % 2) }, items: 20, each: 4}
			g.keyFunc = func(of func(int) string, m *listener.Message[job]) string {
				if m.Body.N == 1 || m.Body.N == 12 {
					fault()
				}
				return of(m.Body.N)
			}
			g.send(1, time.Second)
			l, stop := g.start()
			b.until(18, time.Minute)
			advance(time.Minute)
			stop()
			if st := l.State(); st.Poisoned != 1 {
				t.Errorf("%s: got %d poisoned, want 1", name, st.Poisoned)
			}
			g.wantOrder(18)
			b.wantFree()
		})
	}
}

// For any groups and jobs that share keys, every item is done once, no two of a key run at once, and
// the items of a key in a group keep their order.
func TestAnyGroupsKeepTheirOrder(t *testing.T) {
	seeds := 200
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		bubble(t, nil, func(b *bundle) {
			dice := rand.New(rand.NewPCG(uint64(seed), 0))
			keys, work := 1+dice.IntN(6), time.Duration(0)
			ofN := make([]string, 200)
			for i := range ofN {
				if ofN[i] = fmt.Sprint(dice.IntN(keys + 1)); ofN[i] == "0" {
					ofN[i] = ""
				}
			}
			g := &groups{bundle: b, of: func(n int) string { return ofN[n%200] }, items: 1 + dice.IntN(30), each: 1 + dice.IntN(6)}
			paces := make([]time.Duration, 200)
			for i := range paces {
				paces[i] = []time.Duration{0, time.Millisecond, time.Second, 8 * time.Second}[dice.IntN(4)]
				work += paces[i]
			}
			g.handler = func(_ context.Context, m *listener.Message[job]) error {
				time.Sleep(paces[m.Body.N%200])
				return nil
			}
			sent, singles := 1+dice.IntN(4), dice.IntN(20)
			g.send(sent, 0)
			for i := range singles { // with the keys of some items
				b.send("", 200*g.items+i*g.items, 0)
			}
			all := sent*g.items + singles
			l, stop := g.start()
			b.until(all, 4*work+2*time.Minute)
			advance(time.Second)
			stop()
			g.wantOrder(all)
			b.wantFree()
			b.wantEmpty(l)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		})
	}
}

// A failed item comes again with its group, and keeps no item from its turn in this delivery.
func TestAFailedItemEndsItsTurn(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		g := &groups{bundle: b, of: func(int) string { return "a" }, items: 10, each: 4}
		failed := false
		g.handler = func(_ context.Context, m *listener.Message[job]) error {
			if m.Body.N == 3 && !failed {
				failed = true
				return errors.New("broken")
			}
			return nil
		}
		g.send(1, time.Second)
		l, stop := g.start()
		b.until(10, time.Minute)
		advance(time.Second)
		stop()
		if st := l.State(); st.Retried != 1 || st.Snoozed != 0 || st.Succeeded != 1 {
			t.Errorf("got %d retried, %d snoozed, %d succeeded; want 1, 0, 1", st.Retried, st.Snoozed, st.Succeeded)
		}
		b.wantFree()
	})
}

// Jobs of two kinds share a key, and so do those of two queues, if their handlers share the Keys.
func TestKindsAndQueuesShareKeys(t *testing.T) {
	type other struct{ Takes time.Duration }
	bubble(t, nil, func(b *bundle) {
		jobs, others := kinds.Kind[job]{Name: "job"}, kinds.Kind[other]{Name: "other"}
		second := b.newQueue("second")
		for i := range 10 {
			o := &producer.SendOptions{Key: fmt.Sprint("key ", i%2)}
			_, err1 := jobs.Producer(b.queue, nil).Send(b.Context(), job{i, time.Second / 3}, o)
			_, err2 := others.Producer(b.queue, nil).Send(b.Context(), other{time.Second / 3}, o)
			_, err3 := producer.New[job](second, nil).Send(b.Context(), job{100 + i, time.Second / 3}, o)
			if err1 != nil || err2 != nil || err3 != nil {
				t.Fatal(err1, err2, err3)
			}
		}
		handleOther := func(ctx context.Context, m *listener.Message[other]) error {
			one := &listener.Message[job]{Body: job{200, m.Body.Takes}, Head: m.Head, Attempt: m.Attempt}
			return b.handle(ctx, one)
		}
		o := &listener.Options[any]{Logger: b.options.Logger}
		stop1 := b.run(listener.NewKinds(b.queue, []listener.Kind{
			jobs.Handle(b.limited(b.handle), nil),
			others.Handle(listener.Chain(handleOther, perkey.Middleware[other](b.keys)), nil),
		}, o))
		stop2 := b.run(listener.New(second, b.limited(b.handle), b.options))
		b.until(30, time.Minute)
		stop1()
		stop2()
		b.wantFree()
		if b.count("key 0") != 15 || b.count("key 1") != 15 {
			t.Errorf("got %d and %d done, want 15 each", b.count("key 0"), b.count("key 1"))
		}
	})
}

// A flood of one key in a member of a pool leaves the slots of the pool to the other members, and to the other
// keys of its own.
func TestAFloodLeavesThePoolToOthers(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		slots := pool.New(&pool.Options{Slots: 16})
		second := b.newQueue("second")
		b.flood("busy", 200, 2*time.Second)
		b.options.Slots = slots.Member(nil)
		_, stop1 := b.start(b.limited(b.handle))
		o := *b.options
		o.Slots = slots.Member(nil)
		stop2 := b.run(listener.New(second, b.limited(b.handle), &o))
		for i := range 30 {
			advance(time.Second)
			if s := b.keys.State(); s.Waiting > 4 {
				t.Errorf("got %+v, want at most a quarter of the slots taken by jobs that wait", s)
			}
			b.send(fmt.Sprint("own ", i), i, 0)
			if _, err := producer.New[job](second, nil).Send(b.Context(), job{100 + i, 0}, &producer.SendOptions{Key: fmt.Sprint("other ", i)}); err != nil {
				t.Fatal(err)
			}
		}
		advance(2 * time.Second)
		b.mu.Lock()
		others := 0
		for _, f := range b.done {
			if f.key == "busy" {
				continue
			}
			others++
			if late := f.began - time.Duration(f.n%100+1)*time.Second; late > 2*time.Second {
				t.Errorf("%+v began %v after it was sent", f, late)
			}
		}
		b.mu.Unlock()
		stop1()
		stop2()
		if others != 60 {
			t.Errorf("got %d jobs of other keys done, want 60", others)
		}
		b.wantFree()
	})
}

// Outside of Batch a batch has at most one job of each key.
func TestABatchHasOneJobOfAKey(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		for i := range 30 {
			b.send(fmt.Sprint("key ", i%5), i, 0)
		}
		h := listener.Batch(func(_ context.Context, ms []*listener.Message[job]) []error {
			time.Sleep(time.Second / 10)
			seen := map[string]bool{}
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, m := range ms {
				if seen[m.Head.Key] {
					t.Errorf("a batch of %d has two jobs of key %q", len(ms), m.Head.Key)
				}
				seen[m.Head.Key] = true
				b.done = append(b.done, finished{key: m.Head.Key, n: m.Body.N, attempt: 1})
			}
			return nil
		}, 10, 100*time.Millisecond)
		l, stop := b.start(b.limited(h))
		b.until(30, time.Minute)
		stop()
		b.wantFree()
		b.wantEmpty(l)
	})
}
