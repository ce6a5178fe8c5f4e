package listener

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// A message that is given back without a delay is fetched at once, not when the idle wait ends.
func TestAMessageGivenBackWithoutADelayIsFetchedAtOnce(t *testing.T) {
	for name, again := range map[string]error{
		"Retry(0)":        dispatcher.Retry(0, errors.New("not yet")),
		"Snooze(0)":       dispatcher.Snooze(0),
		"RetryDelay of 0": errors.New("not yet"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.send(1)
				o := options()
				o.Fetch.Idle = Idle{Max: 10 * time.Minute}
				o.RetryDelay = func(int, error) time.Duration { return 0 }
				var at []time.Duration
				l := New(b.queue, func(_ context.Context, m *Message[job]) error {
					if len(at) == 0 {
						time.Sleep(time.Hour) // until the loop sleeps for Idle.Max
					}
					at = append(at, time.Since(b.begin))
					if len(at) < 4 {
						return again
					}
					return nil
				}, o)
				b.run(l)
				advance(2 * time.Hour)
				b.mustFinish()
				if len(at) != 4 || at[3] != at[0] {
					t.Errorf("got deliveries at %v, want four at the same time", at)
				}
			})
		})
	}
}

// Any number of releases is remembered, and those of one second are worth one poll.
func TestNoReleaseIsForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	bubble(t, func(b *bundle) {
		const n = 3000
		for i := range n {
			b.send(i)
		}
		o := options()
		o.Concurrency = 128
		o.Fetch.Idle = Idle{Max: 24 * time.Hour}
		// One becomes visible every ten seconds, the last ones first: an early release must not
		// be forgotten because it is remembered late.
		visibleAt := func(i int) time.Duration { return time.Hour + time.Duration(n-i)*10*time.Second }
		var late atomic.Int64
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			left := visibleAt(m.Body.N) - time.Since(b.begin)
			if left > 0 {
				return dispatcher.Snooze(left)
			}
			if left < -2*time.Second {
				late.Add(1)
			}
			return nil
		}, o)
		b.run(l)
		advance(12 * time.Hour)
		b.mustFinish()
		if done := l.State().Outcomes[Deleted]; done != n || late.Load() > 0 {
			t.Errorf("got %d jobs done, %d of them late; want %d and 0", done, late.Load(), n)
		}
	})
}

// A thousand messages that become visible within one second are fetched with few polls.
func TestReleasesOfOneSecondAreFetchedTogether(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 1000
		for i := range n {
			b.send(i)
		}
		o := options()
		o.Concurrency = n
		o.Fetch.Idle = Idle{Max: time.Hour}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.DequeueCount == 1 {
				time.Sleep(time.Minute + time.Duration(m.Body.N)*time.Millisecond - time.Since(b.begin))
				return dispatcher.Snooze(5 * time.Minute)
			}
			return nil
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		before := len(b.queue.sent("dequeue"))
		advance(5 * time.Minute)
		polls := len(b.queue.sent("dequeue")) - before
		b.mustFinish()
		if done := l.State().Outcomes[Deleted]; done != n {
			t.Errorf("got %d jobs done, want %d", done, n)
		}
		if bound := 3 * n / queue.MaxBatch; polls > bound {
			t.Errorf("got %d polls for %d messages, want at most %d", polls, n, bound)
		}
	})
}

// L-16: while dequeues fail the listener backs off up to 30 s, whatever becomes visible and
// however often it is configured meanwhile.
func TestWakeUpsDoNotEndAPauseAfterAnError(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 600
		for i := range n {
			b.send(i)
		}
		var down atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" && down.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		o := options()
		o.Concurrency = n
		o.Fetch.Loops.Max = 1
		o.Fetch.BatchSize = queue.MaxBatch
		o.Fetch.Idle.Max = time.Hour
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.DequeueCount == 1 {
				return dispatcher.Snooze(time.Minute + time.Duration(m.Body.N)*time.Second)
			}
			return nil
		}, o)
		b.run(l)
		advance(59 * time.Second)
		down.Store(true)
		before := len(b.queue.sent("dequeue"))
		for range 10 * 60 { // a release and a change of settings every second
			if err := l.Configure(Settings{Idle: Idle{Max: time.Hour}}); err != nil {
				b.Fatal(err)
			}
			advance(time.Second)
		}
		// Waits of 0.1, 0.2 … 25.6 s and then 30 s, each ± a quarter.
		if polls := len(b.queue.sent("dequeue")) - before; polls < 20 || polls > 36 {
			t.Errorf("got %d polls in ten minutes of 503, want 20 to 36", polls)
		}
		down.Store(false)
		advance(time.Minute)
		if done := l.State().Outcomes[Deleted]; done != n {
			t.Errorf("got %d jobs done a minute after the outage, want %d", done, n)
		}
		b.mustFinish()
	})
}

// L-16: the wait after an error is at most 30 s ± 25 %, also where the idle wait is longer.
func TestALongIdleMinDoesNotLengthenThePauseAfterAnError(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if time.Since(b.begin) < 10*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		b.send(1)
		o := options()
		o.Fetch.Idle.Min = time.Hour
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(40 * time.Second)
		if l.State().Outcomes[Deleted] != 1 {
			t.Errorf("state 30 s after the outage: got %+v, want Succeeded 1", l.State())
		}
		b.mustFinish()
	})
}

// The waits after errors begin with the Idle.Min in force.
func TestWaitsAfterErrorsFollowAChangeOfIdle(t *testing.T) {
	bubble(t, func(b *bundle) {
		var down atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if down.Load() {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		o := options()
		o.Fetch.Idle.Min = 20 * time.Second
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		if err := l.Configure(Settings{Idle: Idle{Max: time.Second}}); err != nil {
			b.Fatal(err)
		}
		advance(time.Minute)
		down.Store(true)
		before := len(b.queue.sent("dequeue"))
		advance(10 * time.Second)
		if polls := len(b.queue.sent("dequeue")) - before; polls < 5 {
			t.Errorf("got %d polls in the first 10 s of an outage, want at least 5", polls)
		}
		b.mustFinish()
	})
}

// sessionWithAgenda returns a session that does not run.
func sessionWithAgenda(t *testing.T) *session {
	s, err := New(setup(t).queue, nothing, options()).prepare()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A release in a second whose earlier releases were already signalled is signalled too.
func TestALaterReleaseInTheSameSecondIsSignalledToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessionWithAgenda(t)
		ctx, cancel := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() { s.watchTime(ctx) })
		begin := time.Now()
		var woken []time.Duration
		for _, due := range []int{5200, 5300, 5900, 5950} {
			s.onRelease(begin.Add(time.Duration(due)*time.Millisecond), false)
			if due == 5200 || due == 5900 {
				continue // given back together with the next one
			}
			for heard := s.snapshot(); heard.heard == heard.polled && time.Since(begin) < time.Hour; heard = s.snapshot() {
				advance(10 * time.Millisecond)
			}
			woken = append(woken, time.Since(begin)/time.Millisecond)
			s.tell(event{what: begins})
		}
		if len(woken) != 2 || woken[0] != 5300 || woken[1] != 5950 {
			t.Errorf("got signals at %v ms, want [5300 5950]: one for each pair", woken)
		}
		if left := s.agenda.released; len(left.latest) > 0 || len(left.seconds) > 0 {
			t.Errorf("remembered releases: got %v, want none", left.latest)
		}
		cancel()
		watching.Wait()
	})
}

// A loop that ends because the settings allow fewer passes its wake-up on: a retry due in 5 s
// is fetched then, although the concurrency was lowered meanwhile.
func TestALoopThatEndsPassesItsWakeUpOn(t *testing.T) {
	for _, minLoops := range []int{1, 16} {
		t.Run(fmt.Sprint("Min ", minLoops), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				o := options()
				o.Concurrency = 512
				o.Fetch.Idle = Idle{Max: time.Minute}
				o.Fetch.Loops.Min = minLoops
				o.Fetch.QueueWorkDetected = func(scaling.Load) int { return 16 }
				o.Fetch.Loops.Pause = 24 * time.Hour // all stay
				attempts := make(chan time.Time, 10)
				l := New(b.queue, func(_ context.Context, m *Message[job]) error {
					attempts <- time.Now()
					if m.Attempt == 1 {
						return dispatcher.Retry(5*time.Second, errors.New("once"))
					}
					return nil
				}, o)
				b.run(l)
				b.send(1)
				<-attempts
				<-attempts
				advance(10 * time.Minute) // all loops sleep for a minute by now
				if n := l.State().Loops; n != 16 {
					b.Fatalf("got %d loops, want 16", n)
				}
				b.send(2)
				first := <-attempts
				advance(time.Second)
				if err := l.Configure(Settings{Concurrency: 4}); err != nil {
					b.Fatal(err)
				}
				if again := (<-attempts).Sub(first); again > 6*time.Second {
					t.Errorf("delay of the second attempt: got %v, want 5 to 6 s", again)
				}
				b.mustFinish()
			})
		})
	}
}

// Lowering the concurrency causes no polls by the loops that end, and they end at once.
func TestSurplusLoopsEndWithoutAPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 512
		o.Fetch.Idle = Idle{Max: time.Hour}
		o.Fetch.Loops.Min = 16
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Hour)
		before := len(b.queue.sent("dequeue"))
		if err := l.Configure(Settings{Loops: Loops{Max: 2}}); err != nil {
			b.Fatal(err)
		}
		synctest.Wait()
		if n, polls := l.State().Loops, len(b.queue.sent("dequeue"))-before; n != 2 || polls > 1 {
			t.Errorf("got %d loops after %d polls, want 2 after at most 1", n, polls)
		}
		b.mustFinish()
	})
}

// A shorter idle wait applies to all loops: the one that sees it first may end, and the others
// must not continue their old wait.
func TestAShorterIdleWaitReachesAllLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 256
		o.Fetch.Idle = Idle{Max: 10 * time.Hour}
		o.Fetch.Loops.Min = 8
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(100 * time.Hour) // all sleep for ten hours
		before := len(b.queue.sent("dequeue"))
		if err := l.Configure(Settings{Idle: Idle{Max: time.Second}, Loops: Loops{Min: 1}}); err != nil {
			b.Fatal(err)
		}
		advance(time.Minute)
		if n := l.State().Loops; n != 1 {
			t.Errorf("got %d loops a minute after the change, want 1", n)
		}
		// 60 of the loop that stays, and a few of each that ends.
		if polls := len(b.queue.sent("dequeue")) - before; polls < 50 || polls > 60+8*6 {
			t.Errorf("got %d polls in the minute after the change; want between 50 and %v", polls, 60+8*6)
		}
		begin := time.Now()
		b.put(1)
		for l.State().Outcomes[Deleted] == 0 {
			advance(100 * time.Millisecond)
		}
		if waited := time.Since(begin); waited > 1300*time.Millisecond {
			t.Errorf("idle wait of at most 1 s: the job waited %v; want at most %v", waited, 1300*time.Millisecond)
		}
		b.mustFinish()
	})
}

// listeners with different seeds wait differently, after empty polls and after errors;
// those with the same seed wait alike.
func TestWaitsDependOnTheSeed(t *testing.T) {
	instants := func(seed uint64, down bool) (at []time.Duration) {
		bubble(t, func(b *bundle) {
			b.queue.intercept = func(op string, act func() error) error {
				if down {
					return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
				}
				return act()
			}
			o := options()
			o.Seed = seed
			b.run(New(b.queue, nothing, o))
			advance(time.Minute)
			b.mustFinish()
			for _, c := range b.queue.sent("dequeue") {
				at = append(at, c.at.Sub(b.begin))
			}
		})
		return at
	}
	for what, down := range map[string]bool{"empty polls": false, "errors": true} {
		one, same := fmt.Sprint(instants(1, down)), fmt.Sprint(instants(1, down))
		if one != same {
			t.Errorf("after %s, two runs of one seed: got\n%v\nand\n%v, want equal waits", what, one, same)
		}
		seen := map[string]uint64{one: 1}
		for seed := uint64(2); seed <= 5; seed++ {
			polls := fmt.Sprint(instants(seed, down))
			if other, ok := seen[polls]; ok {
				t.Errorf("after %s, seeds %d and %d: got equal waits, want different ones:\n%v", what, seed, other, polls)
			}
			seen[polls] = seed
		}
		random := fmt.Sprint(instants(0, down))
		if again := fmt.Sprint(instants(0, down)); random == again {
			t.Errorf("after %s, two listeners without a seed: got equal waits, want different ones:\n%v", what, again)
		}
	}
}

// A release that is due now does not wait for a later one in the same second.
func TestAReleaseThatIsDueIsSignalledBeforeALaterOneInItsSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sessionWithAgenda(t)
		s.onRelease(time.Now().Add(900*time.Millisecond), false)
		s.onRelease(time.Now(), false)
		if heard := s.snapshot().heard; heard != 1 {
			t.Errorf("release due now: got %d signals, want one", heard)
		}
	})
}
