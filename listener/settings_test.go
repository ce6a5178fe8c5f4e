package listener

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// Concurrency, loops and idle waits change while a listener runs.
func TestConcurrencyCanChangeWhileRunning(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(10_000)
		o := options()
		o.Concurrency = 32
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o)
		b.run(l)
		for _, c := range []int{200, 1, 64} {
			advance(5 * time.Second)
			if err := l.Configure(Settings{Concurrency: c}); err != nil {
				t.Fatal(err)
			}
			advance(5 * time.Second)
			// Up to a sixth of the slots may be free while they wait for more, to be worth a dequeue.
			if st := l.State(); st.Running > c || st.Running < c-c/6 {
				t.Errorf("Running: got %d, want %d", st.Running, c)
			}
		}
		advance(10 * time.Minute)
		b.mustFinish()
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("got %d messages left, want 0", d)
		}
	})
}

// L-01: more loops start at once; excess loops end after their next poll, and at least one
// remains.
func TestLoopsCanChangeWhileRunning(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Loops.Pause = -1
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		for _, c := range []struct {
			set  Loops
			want int
		}{
			{Loops{Min: 5}, 5},
			{Loops{Min: 8, Max: 20}, 8},
			{Loops{Max: 3}, 3},
			{Loops{Min: 1}, 1},
		} {
			if err := l.Configure(Settings{Loops: c.set}); err != nil {
				t.Fatal(err)
			}
			advance(10 * time.Second)
			if n := l.State().Loops; n != c.want {
				t.Errorf("%+v: got %d loops, want %d", c.set, n, c.want)
			}
		}
		b.mustFinish()
	})
}

func TestIdleCanChangeWhileRunning(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Idle = Idle{Max: time.Hour}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Hour)
		before := len(b.queue.sent("dequeue"))
		if err := l.Configure(Settings{Idle: Idle{Max: time.Second}}); err != nil {
			t.Fatal(err)
		}
		advance(100 * time.Second) // the change wakes the loop long before its hour ends
		if polls := len(b.queue.sent("dequeue")) - before; polls < 90 || polls > 110 {
			t.Errorf("got %d polls in 100 s; want between 90 and 110", polls)
		}
		b.mustFinish()
	})
}

// L-01: fewer than no loops is an error, and so are other impossible settings.
func TestBadSettingsChangeNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, nothing, options())
		if err := l.Configure(Settings{Concurrency: 1}); err == nil {
			t.Error("Configure before Run: got no error, want one")
		}
		b.run(l)
		advance(time.Second)
		for _, bad := range []Settings{
			{Concurrency: -1},
			{Loops: Loops{Min: -1}},
			{Loops: Loops{Min: 3, Max: 2}},
			{Idle: Idle{Min: time.Hour, Max: time.Second}, Loops: Loops{Min: 2}},
		} {
			if err := l.Configure(bad); err == nil {
				t.Errorf("%+v: got no error, want one", bad)
			}
		}
		if n := l.State().Loops; n != 1 {
			t.Errorf("got %d loops, want 1", n)
		}
		b.mustFinish()
		if err := l.Configure(Settings{Concurrency: 1}); err == nil {
			t.Error("Configure after Run: got no error, want one")
		}
	})
}

// A message that was given back with a delay is polled for when it becomes visible, not when
// the idle wait ends.
func TestADelayedMessageIsFetchedWhenItBecomesVisible(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		o.Fetch.Idle = Idle{Max: time.Hour}
		o.RetryDelay = func(attempt int, _ error) time.Duration { return time.Duration(attempt) * 10 * time.Minute }
		var at []time.Duration
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			at = append(at, time.Since(b.begin))
			switch m.Attempt {
			case 1:
				return errors.New("once")
			case 2:
				if len(at) == 2 {
					return dispatcher.Snooze(7 * time.Minute)
				}
			}
			return nil
		}, o)
		b.run(l)
		advance(24 * time.Hour)
		b.mustFinish()
		want := []time.Duration{0, 10 * time.Minute, 17 * time.Minute}
		if len(at) != 3 || at[1]-want[1] > time.Second || at[2]-want[2] > time.Second {
			t.Errorf("got deliveries at %v, want %v", at, want)
		}
	})
}

// A value that was set stays set: a lower concurrency reduces the loops, and a higher one
// restores them.
func TestLoweringTheConcurrencyKeepsAnExplicitMin(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 256
		o.Fetch.Loops.Min = 8
		o.Fetch.Loops.Pause = -1
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Second)
		for i, c := range []struct {
			set  Settings
			want int
		}{
			{Settings{}, 8},
			{Settings{Concurrency: 3}, 3}, // at most a loop for each slot
			{Settings{Concurrency: 1}, 1},
			{Settings{Loops: Loops{Pause: time.Second}}, 1},
			{Settings{Concurrency: 64}, 8},
			{Settings{Concurrency: 512}, 8},
			{Settings{Concurrency: 2, Loops: Loops{Min: 9}}, 2},
			{Settings{Concurrency: 100}, 9},
			{Settings{Loops: Loops{Max: 2}}, 2},
			{Settings{Concurrency: 64}, 2}, // Max is explicit now, too
			{Settings{Concurrency: 512}, 2},
			{Settings{Loops: Loops{Max: 20}}, 9},
			{Settings{Loops: Loops{Min: 30}}, 30}, // the last setting wins
			{Settings{Loops: Loops{Min: 1}}, 1},
		} {
			if err := l.Configure(c.set); err != nil {
				b.Fatal(err)
			}
			advance(time.Minute)
			if n := l.State().Loops; n != c.want {
				t.Errorf("step %d, %+v: got %d loops, want %d", i, c.set, n, c.want)
			}
		}
		b.mustFinish()
	})
}

// Switching off Pause ends the loops that it kept.
func TestThePauseCanChangeWhileRunning(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := withLoops(5)
		o.Fetch.Loops.Pause = 24 * time.Hour
		l := New(b.queue, nothing, o)
		b.run(l)
		b.put(1)
		advance(time.Minute)
		if n := l.State().Loops; n != 5 {
			b.Fatalf("got %d loops, want 5", n)
		}
		if err := l.Configure(Settings{Loops: Loops{Pause: -1}}); err != nil {
			b.Fatal(err)
		}
		advance(10 * time.Second)
		if n := l.State().Loops; n != 1 {
			t.Errorf("got %d loops without a pause, want 1", n)
		}
		b.mustFinish()
	})
}

// Configure has the same effect as the same values passed to New.
func TestConfigureHasTheEffectOfNew(t *testing.T) {
	for _, c := range []struct {
		concurrency int
		loops       Loops
	}{
		{64, Loops{Min: 8}}, {4, Loops{Min: 8}}, {512, Loops{}}, {64, Loops{Max: 5}}, {2, Loops{Min: 3, Max: 5}}, {1, Loops{}},
	} {
		bubble(t, func(b *bundle) {
			o := options()
			o.Concurrency, o.Fetch.Loops = c.concurrency, c.loops
			made := New(b.queue, nothing, o)
			b.run(made)
			advance(0)
			want := made.session.snapshot().bounds
			b.mustFinish()

			o = options()
			o.Concurrency, o.Fetch.Loops.Min = 1000, c.loops.Min
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(0)
			if err := l.Configure(Settings{Concurrency: c.concurrency, Loops: c.loops}); err != nil {
				b.Fatal(err)
			}
			if got := l.session.snapshot().bounds; got != want {
				t.Errorf("%+v: got bounds %+v after Configure, want those of New, %+v", c, got, want)
			}
			b.mustFinish()
		})
	}
}

// The maximum of loops adapts to the concurrency only until it is set, by any means.
func TestAConfiguredMaxOfLoopsStays(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5000)
		l := New(b.queue, slowHandler(time.Minute), options())
		b.run(l)
		advance(time.Second)
		for _, c := range []Settings{{Loops: Loops{Max: 3}}, {Concurrency: 640}} {
			if err := l.Configure(c); err != nil {
				b.Fatal(err)
			}
		}
		advance(5 * time.Minute)
		if st := l.State(); st.LoopsPeak != 3 {
			t.Errorf("LoopsPeak: got %d, want 3", st.LoopsPeak)
		}
		b.stop()
		l.Halt()
		<-b.done
	})
}

// A setting that a hook overrides is refused, at the start and later.
func TestIdleBesideItsHookIsRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		curve := func(int) time.Duration { return time.Second }
		for _, idle := range []Idle{{Min: time.Second}, {Max: time.Minute}, {Curve: curve}} {
			o := options()
			o.Fetch.QueueEmpty = func(int) (time.Duration, bool) { return time.Second, false }
			o.Fetch.Idle = idle
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			err := New(b.queue, nothing, o).Run(ctx)
			if err == nil || !strings.Contains(err.Error(), "QueueEmpty") || !strings.Contains(err.Error(), "Idle") {
				b.Fatalf("%+v beside a hook: got error %v, want one that names both", idle, err)
			}

			o.Fetch.Idle = Idle{}
			l := New(b.queue, nothing, o)
			b.run(l)
			advance(time.Minute)
			err = l.Configure(Settings{Idle: idle, Concurrency: 3})
			if err == nil || !strings.Contains(err.Error(), "QueueEmpty") || !strings.Contains(err.Error(), "Idle") {
				t.Errorf("%+v beside a hook: got error %v, want one that names both", idle, err)
			}
			if n := l.session.snapshot().bounds.Max; n != 2 {
				t.Errorf("Loops.Max after refused settings: got %d, want 2 as before", n)
			}
			b.mustFinish()
		}
		if n := len(b.queue.sent("dequeue")); n == 0 || n > 3*70 {
			t.Errorf("got %d polls, want between 1 and %d", n, 3*70)
		}
	})
}

// Configure may be called concurrently at any time. The settings in force in the end are those
// of the last call.
func TestConfigureIsSafeForConcurrentUse(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(500)
		l := New(b.queue, slowHandler(100*time.Millisecond), options())
		b.run(l)
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for n := 1; n <= 50; n++ {
					c := Settings{Concurrency: 1 + (n*37+i)%300}
					if i%2 == 0 {
						c = Settings{Loops: Loops{Min: 1 + (n+i)%6}, Idle: Idle{Max: time.Duration(n) * time.Second}}
					}
					if err := l.Configure(c); err != nil && !errors.Is(err, errNotRunning) {
						t.Error(err)
					}
					time.Sleep(time.Duration(i*n) * time.Millisecond)
				}
			})
		}
		callers.Wait()
		advance(time.Minute)
		now, st := l.session.snapshot(), l.State()
		want := now
		if want.applyBounds(); now.bounds != want.bounds || st.Loops < want.bounds.Min {
			t.Errorf("got bounds %+v with %d loops, want %+v", now.bounds, st.Loops, want.bounds)
		}
		if st.Outcomes[Deleted] != 500 {
			t.Errorf("got %d jobs done, want 500", st.Outcomes[Deleted])
		}
		b.mustFinish()
	})
}
