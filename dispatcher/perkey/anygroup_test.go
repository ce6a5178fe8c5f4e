package perkey_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// groupWorld is a worker with groups and jobs that share keys.
type groupWorld struct {
	Concurrency, Each int
	Wait              time.Duration
	Groups            [][]groupJob // a group of one is a job without a group
	Inner             bool         // whether each job has a second key inside of the first
	Stops             []int        // after how many seconds the worker is stopped and started again
	GiveUp            bool
	Tokens            int // of a semaphore between EachItem and the keys; 0 for none
}

type groupJob struct {
	Key, Inner int // 0 for none
	Takes      time.Duration
	Faults     []string // one in each call
}

func drawGroupWorld(r *rapid.T) groupWorld {
	w := groupWorld{
		Concurrency: rapid.IntRange(1, 12).Draw(r, "concurrency"),
		Each:        rapid.IntRange(1, 6).Draw(r, "each"),
		Wait:        rapid.SampledFrom([]time.Duration{-1, 0, time.Second}).Draw(r, "wait"),
		Inner:       rapid.IntRange(0, 3).Draw(r, "inner") == 0,
		Stops:       rapid.SliceOfN(rapid.IntRange(1, 30), 0, 2).Draw(r, "stops"),
		GiveUp:      rapid.Bool().Draw(r, "give up"),
		Tokens:      max(0, rapid.IntRange(-3, 3).Draw(r, "tokens")),
	}
	takes := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 300 * time.Millisecond, time.Second, 7 * time.Second})
	fault := rapid.SampledFrom([]string{"error", "snooze", "postpone", "panic", "overdue"})
	jobs := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) groupJob {
		one := groupJob{Key: rapid.IntRange(0, 3).Draw(r, "key"), Inner: rapid.IntRange(0, 2).Draw(r, "inner key"), Takes: takes.Draw(r, "takes")}
		if rapid.IntRange(0, 7).Draw(r, "faulty") == 7 {
			one.Faults = rapid.SliceOfN(fault, 1, 2).Draw(r, "faults")
		}
		return one
	}), 1, 30)
	w.Groups = rapid.SliceOfN(jobs, 1, 5).Draw(r, "groups")
	return w
}

// Whatever groups and jobs there are, and however their handlers end: no two handlers of one key run at
// once, no EachItem exceeds its concurrency, every item is handled to success, and nothing is held in the end.
func TestEveryItemIsHandledAndNoTwoOfAKeyAtOnce(t *testing.T) {
	suitetest.Checks(t, 30)
	rapid.Check(t, func(r *rapid.T) {
		w := drawGroupWorld(r)
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = setup(t, &perkey.Options{Wait: w.Wait}).liveGroups(w) })
		if len(faults) > 0 {
			r.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// liveGroups runs a worker until all jobs of a world are done, and returns what must not happen.
func (b *bundle) liveGroups(w groupWorld) []string {
	var all []groupJob
	for _, group := range w.Groups {
		var jobs []job
		for _, one := range group {
			jobs = append(jobs, job{len(all), one.Takes})
			all = append(all, one)
		}
		var err error
		if len(jobs) == 1 {
			_, err = producer.New[job](b.queue, nil).Send(b.Context(), jobs[0], nil)
		} else {
			_, err = producer.New[job](b.queue, nil).SendGroup(b.Context(), jobs, nil)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	inner, err := perkey.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	lost, calls, done, running := 0, map[int]int{}, map[int]int{}, map[string]int{}
	key := func(name string, of int) string {
		if of == 0 {
			return ""
		}
		return fmt.Sprint(name, of)
	}
	h := func(ctx context.Context, m *listener.Message[job]) error {
		one := all[m.Body.N]
		for _, k := range []string{key("outer ", one.Key), key("inner ", one.Inner)} {
			if w.Inner || k == key("outer ", one.Key) {
				b.enter(k)
				defer b.leave(k)
			}
		}
		b.mu.Lock()
		id := fmt.Sprint(m.ID, m.DequeueCount)
		if running[id]++; running[id] > w.Each {
			b.faults = append(b.faults, fmt.Sprintf("%d handlers of an EachItem of %d", running[id], w.Each))
		}
		n := calls[m.Body.N]
		calls[m.Body.N]++
		b.mu.Unlock()
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			running[id]--
		}()
		if !waiting.For(one.Takes, ctx.Done()) {
			return context.Cause(ctx)
		}
		if n < len(one.Faults) {
			switch one.Faults[n] {
			case "error":
				return errors.New("broken")
			case "snooze":
				return listener.Snooze(2 * time.Second)
			case "postpone":
				return listener.NotRun(time.Second, errors.New("not yet"))
			case "panic":
				panic("broken")
			case "overdue":
				if !waiting.For(20*time.Second, ctx.Done()) && errors.Is(context.Cause(ctx), listener.ErrTimeout) {
					time.Sleep(2 * time.Second)
				}
				return errors.New("overdue")
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		done[m.Body.N]++
		return nil
	}
	around := []listener.Middleware[job]{perkey.MiddlewareBy(b.keys, func(m *listener.Message[job]) string { return key("outer ", all[m.Body.N].Key) })}
	if w.Inner {
		around = append(around, perkey.MiddlewareBy(inner, func(m *listener.Message[job]) string { return key("inner ", all[m.Body.N].Inner) }))
	}
	if tokens := make(chan struct{}, w.Tokens); w.Tokens > 0 {
		around = append([]listener.Middleware[job]{func(next listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				select {
				case tokens <- struct{}{}:
					defer func() { <-tokens }()
					return next(ctx, m)
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}}, around...)
	}
	b.options.Concurrency, b.options.Poison.MaxAttempts = w.Concurrency, 1000
	if w.Tokens == 0 { // otherwise it would pass while an item waits for a token
		b.options.Timeout = 15 * time.Second
	}
	b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
	b.options.Grace = 3 * time.Second
	if w.GiveUp {
		b.options.Lease.StuckAfter, b.options.Lease.GiveUp = time.Second, true
	}
	b.options.Observer.Settled = func(_ listener.Delivery, o listener.Outcome, _ time.Duration) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if o == listener.Lost {
			lost++
		}
	}
	_, stop := b.start(listener.EachItem(listener.Chain(h, around...), w.Each))
	for _, after := range w.Stops {
		advance(time.Duration(after) * time.Second)
		stop()
		if s := b.keys.State(); s.Held+s.Waiting > 0 && !w.GiveUp {
			b.faults = append(b.faults, fmt.Sprintf("after a stop: %+v", s))
		}
		_, stop = b.start(listener.EachItem(listener.Chain(h, around...), w.Each))
	}
	left := func() (n int64) {
		p, err := b.queue.Properties(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return p.Depth
	}
	for minutes := 0; left() > 0 && minutes < 120; minutes++ {
		advance(time.Minute)
	}
	if n := left(); n > 0 {
		b.faults = append(b.faults, fmt.Sprintf("after %v: %d messages are left, %d of %d jobs are done", time.Since(b.begin), n, len(done), len(all)))
	}
	stop()
	advance(time.Minute)
	for _, s := range []perkey.State{b.keys.State(), inner.State()} {
		if s.Held+s.Waiting > 0 {
			b.faults = append(b.faults, fmt.Sprintf("in the end: %+v", s))
		}
	}
	for n := range all {
		if done[n] == 0 || done[n] > 1 && lost == 0 && len(w.Stops) == 0 {
			b.faults = append(b.faults, fmt.Sprintf("job %d was done %d times", n, done[n]))
		}
	}
	return b.faults
}
