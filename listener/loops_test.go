package listener

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

func nothing(context.Context, *Message[job]) error { return nil }

// withLoops returns options for up to n loops, which start with any work and end without a pause.
func withLoops(n int) *Options[job] {
	o := options()
	o.Fetch.Loops = Loops{Max: n, Pause: -1}
	o.Concurrency = n * 32
	o.Fetch.QueueWorkDetected = func(scaling.Load) int { return n }
	return o
}

// L-24, L-25: loops end when their wait has reached the maximum, and exactly one remains.
func TestIdleLoopsEndUntilOneRemains(t *testing.T) {
	for _, n := range []int{2, 10, 200} {
		bubble(t, func(b *bundle) {
			b.put(n * 32)
			l := New(b.queue, nothing, withLoops(n))
			b.run(l)
			advance(time.Second / 2)
			if st := l.State(); st.LoopsPeak != n {
				t.Errorf("LoopsPeak: got %d, want %d", st.LoopsPeak, n)
			}
			advance(time.Hour)
			if st := l.State(); st.Loops != 1 || st.LoopsStarted != n {
				t.Errorf("got %d of %d loops left, want 1 of %d", st.Loops, st.LoopsStarted, n)
			}
			b.mustFinish()
		})
	}
}

// Loops start again with new work, and those of a burst do not end before the pause is over.
func TestLoopsStartAgainWithWorkAndPauseBeforeTheyEnd(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := withLoops(5)
		o.Fetch.Loops.Pause = 30 * time.Second
		l := New(b.queue, nothing, o)
		b.run(l)
		for range 3 {
			b.put(320)
			advance(20 * time.Second)
			if st := l.State(); st.Loops != 5 {
				t.Errorf("got %d loops 20 s after the work, want 5", st.Loops)
			}
			advance(time.Minute)
			if st := l.State(); st.Loops != 1 {
				t.Errorf("got %d loops when idle, want 1", st.Loops)
			}
		}
		b.mustFinish()
	})
}

// fromZero is the default curve from 0 to a second: options cannot set 0, which means the default.
func fromZero(k int) time.Duration { return scaling.Curve(0, time.Second, k, rand.IntN) }

// L-26: with the default curve a second loop ends at its fourth empty poll, 880 to 1309 ms
// after the first, and at once if the wait is fixed.
func TestALoopEndsAtItsFourthEmptyPoll(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			b.put(32) // one answer, so that work is detected once
			o := withLoops(2)
			if fixed {
				o.Fetch.Idle = Idle{Min: time.Second, Max: time.Second}
			} else {
				o.Fetch.Idle = Idle{Min: time.Millisecond, Max: time.Second, Curve: fromZero}
			}
			l := New(b.queue, nothing, o)
			b.run(l)
			early, late := 879*time.Millisecond, 1310*time.Millisecond
			if fixed {
				early, late = 0, time.Millisecond
			}
			advance(early)
			if n := l.State().Loops; !fixed && n != 2 {
				t.Errorf("%v after the last message: got %d loops, want both", early, n)
			}
			advance(late - early)
			if st := l.State(); st.Loops != 1 || st.LoopsStarted != 2 {
				t.Errorf("%v after the last message, fixed %v: got %d of %d loops, want 1 of 2", late, fixed, st.Loops, st.LoopsStarted)
			}
			b.mustFinish()
		})
	}
	bubble(t, func(b *bundle) {
		var polledAt []int // in milliseconds
		o := withLoops(2)
		o.Fetch.Loops.Min = 2 // both run from the start
		o.Fetch.Idle = Idle{Min: time.Millisecond, Max: time.Second, Curve: fromZero}
		l := New(b.queue, nothing, o)
		l.options.Fetch.Loops.Min = 2
		b.run(l)
		advance(0)
		polls := len(b.queue.sent("dequeue"))
		if n := l.State().LoopsStarted; polls != 2 || n != 2 {
			t.Errorf("got %d polls and %d loops at the start, want 2 and 2", polls, n)
		}
		advance(2 * time.Second)
		for _, c := range b.queue.sent("dequeue") {
			polledAt = append(polledAt, int(c.at.Sub(b.begin)/time.Millisecond))
		}
		// Each loop polls at 0, 80…119, 320…476, 880…1309 ms, and then once a second.
		for i, bounds := range [][2]int{{0, 0}, {0, 0}, {80, 119}, {80, 119}, {320, 476}, {320, 476}, {880, 1309}, {880, 1309}} {
			if polledAt[i] < bounds[0] || polledAt[i] > bounds[1] {
				t.Errorf("poll %d: got %d ms, want %d…%d", i, polledAt[i], bounds[0], bounds[1])
			}
		}
		b.mustFinish()
	})
}

// C-06, X-03: one idle loop polls at most once per Max, with up to 10 % jitter so that workers
// do not poll in step.
func TestAnIdleListenerPollsOncePerMax(t *testing.T) {
	for _, idleMax := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute} {
		if testing.Short() && idleMax < time.Minute {
			continue // thousands of polls
		}
		bubble(t, func(b *bundle) {
			o := options()
			o.Fetch.Idle.Max = idleMax
			b.run(New(b.queue, nothing, o))
			advance(time.Hour)
			before := len(b.queue.sent("dequeue"))
			advance(24 * time.Hour)
			polls := len(b.queue.sent("dequeue")) - before
			if bound := int(24 * time.Hour / idleMax); polls > bound || polls < bound*9/10 {
				t.Errorf("Idle.Max %v: got %d polls a day, want 0.9…1.0 of %d", idleMax, polls, bound)
			}
			if n := len(b.queue.sent("properties")); n != 0 {
				t.Errorf("reads of the depth of an idle queue: got %d, want 0", n)
			}
			b.mustFinish()
		})
	}
}

// the loops of one listener, and the first loops of several, have different jitter.
func TestLoopsAndProcessesWaitDifferently(t *testing.T) {
	firstWaits := func(q queue.Queue) (waits map[time.Duration]bool) {
		waits = map[time.Duration]bool{}
		one := New(q, nothing, options())
		s, err := one.prepare()
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			l := s.newLoop()
			waits[l.curveWait(l.setting)] = true
		}
		other, err := New(q, nothing, options()).prepare()
		if err != nil {
			t.Fatal(err)
		}
		if s.jitters.key == other.jitters.key {
			t.Error("two listeners: got the same seed, want different ones")
		}
		return waits
	}
	bubble(t, func(b *bundle) {
		if n := len(firstWaits(b.queue)); n < 5 {
			t.Errorf("different waits of 20 loops: got %d, want at least 5", n)
		}
	})
}

// L-05, L-14: the hook decides how long to wait and whether the loop ends; the last one never
// ends.
func TestTheQueueEmptyHookDecides(t *testing.T) {
	bubble(t, func(b *bundle) {
		var mu sync.Mutex
		counts := map[int]int{}
		o := options()
		o.Fetch.Loops = Loops{Min: 1, Max: 3, Pause: -1}
		o.Fetch.QueueEmpty = func(idle int) (time.Duration, bool) {
			mu.Lock()
			defer mu.Unlock()
			counts[idle]++
			return 7 * time.Second, idle >= 3
		}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(70 * time.Second)
		b.mustFinish()
		if polls := len(b.queue.sent("dequeue")); polls != 11 {
			t.Errorf("got %d polls in 70 s at one every 7 s, want 11", polls)
		}
		if counts[1] != 1 || counts[3] != 1 || counts[11] != 1 {
			t.Errorf("got idle counts %v, want each of 1 to 11 once", counts)
		}
	})
	bubble(t, func(b *bundle) { // a hook that returns zero does not cause a busy loop
		o := options()
		o.Fetch.QueueEmpty = func(int) (time.Duration, bool) { return -1, true }
		b.run(New(b.queue, nothing, o))
		advance(time.Second)
		b.mustFinish()
		if polls := len(b.queue.sent("dequeue")); polls > 1001 {
			t.Errorf("got %d polls in a second; want at most 1001", polls)
		}
	})
}

// L-28, L-29, B-14: the number of loops follows the sample rule when work appears on an idle
// queue.
func TestLoopsFollowTheDepth(t *testing.T) {
	for depth, want := range map[int]int{1: 10, 99: 10, 100: 50, 999: 50, 1000: 100} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				o := options()
				o.Fetch.QueueWorkDetected = scaling.Stepped()
				o.Fetch.Loops.Max = 200
				o.Concurrency = 4000
				l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(10 * time.Second); return nil }, o)
				b.run(l)
				advance(time.Minute)
				if st := l.State(); st.Loops != 1 {
					t.Errorf("got %d loops on an idle queue, want 1", st.Loops)
				}
				b.put(depth)
				advance(5 * time.Second)
				if st := l.State(); st.Loops != want {
					t.Errorf("depth %d: got %d loops, want %d", depth, st.Loops, want)
				}
				advance(time.Minute)
				b.mustFinish()
			})
		})
	}
}

// however many loops want to end at the same time, one stays. The naive variant reads the
// number and decides on it later, and fails the check.
func TestTheLastLoopsCannotEndTogether(t *testing.T) {
	survivors := func(n int, end func(together *sync.WaitGroup) bool) int {
		var together, all sync.WaitGroup
		together.Add(n)
		var ended atomic.Int64
		for range n {
			all.Go(func() {
				if end(&together) {
					ended.Add(1)
				}
			})
		}
		all.Wait()
		return n - int(ended.Load())
	}
	for _, n := range []int{2, 3, 50} {
		o := ownerWith(Loops{Min: 1, Max: n, Pause: -1})
		o.tell(event{what: sized, target: n})
		if s := survivors(n, func(together *sync.WaitGroup) bool {
			together.Done()
			together.Wait()
			return o.tell(event{what: idled})[end] > 0
		}); s != 1 {
			t.Errorf("got %d of %d loops left, want 1", s, n)
		}

		active := atomic.Int64{}
		active.Store(int64(n))
		if s := survivors(n, func(together *sync.WaitGroup) bool {
			read := active.Load()
			together.Done()
			together.Wait()
			if read > 1 {
				active.Add(-1)
				return true
			}
			return false
		}); s == 1 {
			t.Error("check of the source's decision: got a pass, want a failure")
		}
	}
}

// Slots are opened before the loops that use them start: a loop that ran first would fetch too
// few messages.
func TestSlotsAreOpenedBeforeLoopsStart(t *testing.T) {
	o := ownerWith(Loops{Min: 1, Max: 9})
	for _, target := range []int{2, 5, 9} {
		_, actions := step(o.state, event{what: sized, target: target, now: time.Second})
		o.tell(event{what: sized, target: target})
		first, second := actions[0], actions[1]
		if first.do != openSlots || first.n != 32*target || second.do != startLoops {
			t.Errorf("%d loops: got actions %+v, want the slots of all to be opened first", target, actions)
		}
	}
}

// loops that detect the same work start the difference once. The naive variant does not.
func TestLoopsThatSeeTheSameWorkDoNotOvershoot(t *testing.T) {
	const detectors, target = 8, 10
	total := func(grow func(together *sync.WaitGroup) int) int {
		var together, all sync.WaitGroup
		together.Add(detectors)
		var started atomic.Int64
		for range detectors {
			all.Go(func() { started.Add(int64(grow(&together))) })
		}
		all.Wait()
		return int(started.Load())
	}
	o := ownerWith(Loops{Min: 1, Max: 1000})
	if n := total(func(together *sync.WaitGroup) int {
		together.Done()
		together.Wait()
		return o.tell(event{what: sized, target: target})[startLoops]
	}); n != target-1 {
		t.Errorf("got %d loops started, want %d beside the first one", n, target-1)
	}
	var active atomic.Int64
	if n := total(func(together *sync.WaitGroup) int {
		missing := target - int(active.Load())
		together.Done()
		together.Wait()
		active.Add(int64(missing))
		return missing
	}); n == target {
		t.Error("check of the source's start of loops: got a pass, want a failure")
	}

	o = ownerWith(Loops{Min: 1, Max: 7})
	if o.tell(event{what: sized, target: 1 << 30}); o.state.active != 7 {
		t.Errorf("got %d loops, want 7, the maximum", o.state.active)
	}
	if n := o.tell(event{what: sized, target: -5})[startLoops]; n != 0 {
		t.Errorf("got %d loops for a negative target, want 0", n)
	}
	o.tell(event{what: enters, phase: Draining})
	o.state.bounds.Max = 100
	if n := o.tell(event{what: sized, target: 100})[startLoops]; n != 0 {
		t.Errorf("got %d loops started after the stop, want 0", n)
	}
}

// L-31, X-11: a queue that is full at the start, or fills while all loops are busy, starts
// loops without having been idle. The naive variant asks only when work appears after idleness.
func TestAQueueThatWasNeverIdleScalesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("handles tens of thousands of messages")
	}
	const want = 8
	slow := func(context.Context, *Message[job]) error { time.Sleep(500 * time.Millisecond); return nil }
	slowOptions := func() *Options[job] {
		o := options()
		o.Concurrency = want * 32
		return o
	}
	bubble(t, func(b *bundle) {
		b.put(20_000)
		l := New(b.queue, slow, slowOptions())
		b.run(l)
		advance(2 * time.Second)
		if n := l.State().Loops; n != want {
			t.Errorf("full at the start: got %d loops, want %d", n, want)
		}
		advance(2 * time.Minute)
		b.mustFinish()
	})
	bubble(t, func(b *bundle) {
		b.put(64)
		l := New(b.queue, slow, slowOptions())
		b.run(l)
		advance(100 * time.Millisecond)
		busy := l.State().Loops
		b.put(20_000)
		advance(5 * time.Second)
		if n := l.State().Loops; n != want || busy >= want {
			t.Errorf("filled while busy: got %d loops after %d, want %d after fewer", n, busy, want)
		}
		advance(2 * time.Minute)
		b.mustFinish()
	})
	bubble(t, func(b *bundle) {
		b.put(2_000)
		if n := naiveEdge(b, want); n == want {
			t.Error("check of the source's edge: got a pass, want a failure")
		}
	})
}

// naiveEdge is a loop that asks only after it was idle; it returns the number of loops.
func naiveEdge(b *bundle, optimal int) (loops int) {
	idle := 0
	loops = 1
	for range 30 {
		batch, _ := b.queue.Dequeue(b.Context(), 32, time.Minute)
		if len(batch) == 0 {
			idle++
			continue
		}
		if idle > 0 {
			loops = optimal
		}
		idle = 0
		for _, m := range batch {
			_ = b.queue.Delete(b.Context(), m.Lease)
		}
	}
	return loops
}

// The depth costs a transaction: it is read when work appears and then at most once per 256
// messages.
func TestTheDepthIsReadAtMostOncePer256Messages(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 10_000
		b.put(n)
		o := options()
		o.Concurrency = 256
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(50 * time.Millisecond); return nil }, o)
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		if reads := len(b.queue.sent("properties")); reads == 0 || reads > 1+n/256 {
			t.Errorf("reads of the depth for %d messages: got %d, want between 1 and %d", n, reads, 1+n/256)
		}
		if st := l.State(); st.Outcomes[Deleted] != n || st.DepthAt.IsZero() {
			t.Errorf("got state %+v, want Succeeded %d and DepthAt set", st, n)
		}
	})
}

// Single messages now and then cost one poll and one delete each, and no reading of the depth:
// a batch that was not full has emptied the queue. The flag that pauses workers costs a request a minute.
func TestSingleMessagesCauseNoReadOfTheDepth(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, nothing, options())
		b.run(l)
		for range 50 {
			advance(3 * time.Second)
			b.put(1)
		}
		advance(3 * time.Second)
		b.mustFinish()
		if n := len(b.queue.sent("properties")); n != 3 {
			t.Errorf("readings of the metadata in 2½ minutes: got %d, want 3", n)
		}
		if st := l.State(); st.Outcomes[Deleted] != 50 || !st.DepthAt.IsZero() {
			t.Errorf("got state %+v; want Succeeded 50 and no depth", st)
		}
	})
}

// C-03, B-16: under a backlog batches stay full, so that a message costs little more than its
// delete. Every request is counted.
func TestBatchesStayFullUnderBacklog(t *testing.T) {
	if testing.Short() {
		t.Skip("handles tens of thousands of messages")
	}
	for concurrency, bound := range map[int]float64{64: 1.10, 256: 1.045, 512: 1.04} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				const n = 20_000
				b.put(n)
				b.queue.latency = 10 * time.Millisecond
				o := options()
				o.Concurrency = concurrency
				var handled atomic.Int64
				l := New(b.queue, func(_ context.Context, m *Message[job]) error {
					// Handling times differ, so that slots become free one by one.
					time.Sleep(time.Duration(10+m.Body.N%17) * time.Millisecond)
					handled.Add(1)
					return nil
				}, o)
				b.run(l)
				for handled.Load() < n-1000 {
					time.Sleep(10 * time.Millisecond)
				}
				st := l.State()
				requests := 0
				for _, op := range []string{"dequeue", "delete", "properties", "update"} {
					requests += len(b.queue.sent(op))
				}
				perMessage := float64(requests) / float64(st.Received)
				t.Logf("concurrency %d: %.4f transactions a message, %.1f messages a batch",
					concurrency, perMessage, float64(st.Received)/float64(st.Polls))
				if perMessage > bound {
					t.Errorf("got %.4f transactions a message, want at most %v", perMessage, bound)
				}
				advance(time.Minute)
				b.mustFinish()
			})
		})
	}
}

// L-16, R-01: an error when reading the depth is reported and ends no loop.
func TestADepthThatCannotBeReadStopsNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		var reported atomic.Int64
		o := withLoops(4)
		o.OnError = func(err error) {
			if errors.Is(err, queue.ErrUnavailable) {
				reported.Add(1)
			}
		}
		b.put(5000)
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 5000 || reported.Load() == 0 {
			t.Errorf("got state %+v and %d errors, want Succeeded 5000 and at least 1 error", st, reported.Load())
		}
	})
}

// Loops in excess that sleep end at once, also while another loop is about to poll for an older reason.
func TestASleepingLoopInExcessEndsWhileAPollIsOwed(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.BatchSize, o.Concurrency, o.Fetch.Loops = 1, 2, Loops{Min: 3, Max: 3}
		o.Fetch.Idle.Min, o.Fetch.Idle.Max = time.Hour, time.Hour
		b.put(1)
		l := New(b.queue, slowHandler(10*time.Hour), o)
		b.run(l)
		advance(time.Second)
		b.put(1)
		l.Wake() // for the second message, which takes the last slot
		advance(time.Second)
		l.Wake() // for a loop that waits for a slot from now on
		advance(time.Second)
		if st := l.State(); st.Loops != 3 || st.Running != 2 {
			b.Fatalf("got %d loops and %d handlers, want 3 and 2", st.Loops, st.Running)
		}
		if err := l.Configure(Settings{Loops: Loops{Max: 1}}); err != nil {
			b.Fatal(err)
		}
		advance(time.Second)
		if n := l.State().Loops; n != 2 {
			b.Errorf("got %d loops, want 2: the one that slept has ended", n)
		}
		l.Halt()
		b.mustFinish()
	})
}

// A rule that asks for more loops than Loops.Max allows is logged once; one within it, and the default, are not.
func TestTheLogSaysThatLoopsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		rule  func(scaling.Load) int
		most  int
		lines int
	}{
		"default bound": {func(scaling.Load) int { return 10 }, 0, 1}, "own bound": {func(scaling.Load) int { return 10 }, 5, 1},
		"within": {func(scaling.Load) int { return 10 }, 10, 0}, "no rule": {nil, 1, 0},
	} {
		bubble(t, func(b *bundle) {
			var log bytes.Buffer
			o := options()
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Fetch.Loops.Max, o.Fetch.QueueWorkDetected = c.most, c.rule
			l := New(b.queue, nothing, o)
			b.run(l)
			for range 5 {
				b.put(500)
				advance(time.Minute)
			}
			b.mustFinish()
			if n := strings.Count(log.String(), "loops are bounded"); n != c.lines || n > 0 && !strings.Contains(log.String(), fmt.Sprintf("asked=10 loops_max=%d", cmp.Or(c.most, 2))) {
				t.Errorf("%s: got %d lines, want %d: %s", name, n, c.lines, &log)
			}
		})
	}
}
