package listener

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

func nothing(context.Context, *Message[job]) error { return nil }

// many returns options for exactly n loops that end without a pause.
func many(n int) *Options[job] {
	o := options()
	o.Loops = Loops{Max: n, Pause: -1}
	o.Concurrency = n * 32
	o.QueueWorkDetected = func(scaling.Load) int { return n }
	return o
}

// L-24, L-25: loops end when their wait has reached the maximum, and exactly one remains.
func TestAnIdleFleetShrinksToOne(t *testing.T) {
	for _, n := range []int{2, 10, 200} {
		bubble(t, func(b *bundle) {
			b.put(n * 32)
			l := New(b.queue, nothing, many(n))
			b.run(l)
			after(time.Second / 2)
			if st := l.State(); st.LoopsPeak != n {
				t.Errorf("%d loops at the peak, want %d", st.LoopsPeak, n)
			}
			after(time.Hour)
			if st := l.State(); st.Loops != 1 || st.LoopsStarted != n {
				t.Errorf("%d loops of %d are left, want one of %d", st.Loops, st.LoopsStarted, n)
			}
			b.finished()
		})
	}
}

// Loops start again with new work, and those of a burst do not end before the pause is over.
func TestAFleetGrowsAgainAndPausesBeforeItShrinks(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := many(5)
		o.Loops.Pause = 30 * time.Second
		l := New(b.queue, nothing, o)
		b.run(l)
		for range 3 {
			b.put(320)
			after(20 * time.Second)
			if st := l.State(); st.Loops != 5 {
				t.Errorf("%d loops 20 s after the work, want 5", st.Loops)
			}
			after(time.Minute)
			if st := l.State(); st.Loops != 1 {
				t.Errorf("%d loops when idle, want 1", st.Loops)
			}
		}
		b.finished()
	})
}

// L-26: with the default curve a second loop ends at its fourth empty poll, 880 to 1309 ms
// after the first, and at once if Min equals Max.
func TestALoopEndsAtItsFourthEmptyPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		var ended []int
		o := many(2)
		o.Loops.Min = 2 // both from the start; the hook below lets one go
		var curves atomic.Int64
		o.Idle = scaling.Idle{Min: 1, Max: time.Second, New: func() BackOff {
			curves.Add(1)
			return scaling.Curve(0, time.Second)
		}}
		l := New(b.queue, nothing, o)
		l.options.Loops.Min = 2
		b.run(l)
		after(0)
		polls := len(b.queue.sent("dequeue"))
		if n := curves.Load(); polls != 2 || n != 2 {
			t.Errorf("%d polls and %d curves at the start, want 2 and 2", polls, n)
		}
		after(2 * time.Second)
		for _, c := range b.queue.sent("dequeue") {
			ended = append(ended, int(c.at.Sub(b.begin)/time.Millisecond))
		}
		// Each loop: at 0, 80…119, 320…476, 880…1309 ms, and then once a second.
		for i, bounds := range [][2]int{{0, 0}, {0, 0}, {80, 119}, {80, 119}, {320, 476}, {320, 476}, {880, 1309}, {880, 1309}} {
			if ended[i] < bounds[0] || ended[i] > bounds[1] {
				t.Errorf("poll %d at %d ms, want %d…%d", i, ended[i], bounds[0], bounds[1])
			}
		}
		b.finished()
	})
}

// C-06, X-03: one idle loop polls at most once per Max, with up to 10 % jitter so that workers
// do not poll in step.
func TestAnIdleListenerPollsOncePerMax(t *testing.T) {
	for _, most := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second, time.Minute} {
		bubble(t, func(b *bundle) {
			o := options()
			o.Idle.Max = most
			b.run(New(b.queue, nothing, o))
			after(time.Hour)
			before := len(b.queue.sent("dequeue"))
			after(24 * time.Hour)
			polls := len(b.queue.sent("dequeue")) - before
			if bound := int(24 * time.Hour / most); polls > bound || polls < bound*9/10 {
				t.Errorf("max %v: %d polls a day, want at most %d", most, polls, bound)
			}
			if n := len(b.queue.sent("properties")); n != 0 {
				t.Errorf("an idle queue's depth was read %d times", n)
			}
			b.finished()
		})
	}
}

// the loops of one listener, and the first loops of several, have different jitter.
func TestLoopsAndProcessesWaitDifferently(t *testing.T) {
	first := func(q queue.Queue) (waits map[time.Duration]bool) {
		waits = map[time.Duration]bool{}
		one := New(q, nothing, options())
		s, err := one.prepare()
		if err != nil {
			t.Fatal(err)
		}
		for range 20 {
			waits[s.newLoop().curve.NextBackOff()] = true
		}
		other, err := New(q, nothing, options()).prepare()
		if err != nil {
			t.Fatal(err)
		}
		if s.key == other.key {
			t.Error("two listeners share a seed")
		}
		return waits
	}
	bubble(t, func(b *bundle) {
		if n := len(first(b.queue)); n < 5 {
			t.Errorf("20 loops drew %d different waits", n)
		}
	})
}

// L-05, L-14: the hook decides how long to wait and whether the loop ends; the last
// one never does.
func TestTheQueueEmptyHookDecides(t *testing.T) {
	bubble(t, func(b *bundle) {
		var mu sync.Mutex
		counts := map[int]int{}
		o := options()
		o.Loops = Loops{Min: 1, Max: 3, Pause: -1}
		o.QueueEmpty = func(idle int) (time.Duration, bool) {
			mu.Lock()
			defer mu.Unlock()
			counts[idle]++
			return 7 * time.Second, idle >= 3
		}
		l := New(b.queue, nothing, o)
		b.run(l)
		after(70 * time.Second)
		b.finished()
		if polls := len(b.queue.sent("dequeue")); polls != 11 {
			t.Errorf("%d polls in 70 s at 7 s, want 11", polls)
		}
		if counts[1] != 1 || counts[3] != 1 || counts[11] != 1 {
			t.Errorf("idle counts %v, want 1, 2, 3 … 11", counts)
		}
	})
	bubble(t, func(b *bundle) { // a hook that says zero does not spin
		o := options()
		o.QueueEmpty = func(int) (time.Duration, bool) { return -1, true }
		b.run(New(b.queue, nothing, o))
		after(time.Second)
		b.finished()
		if polls := len(b.queue.sent("dequeue")); polls > 1001 {
			t.Errorf("%d polls in a second", polls)
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
				o.QueueWorkDetected = scaling.Stepped()
				o.Loops.Max = 200
				o.Concurrency = 4000
				l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(10 * time.Second); return nil }, o)
				b.run(l)
				after(time.Minute)
				if st := l.State(); st.Loops != 1 {
					t.Errorf("%d loops on an idle queue", st.Loops)
				}
				b.put(depth)
				after(5 * time.Second)
				if st := l.State(); st.Loops != want {
					t.Errorf("depth %d: %d loops, want %d", depth, st.Loops, want)
				}
				after(time.Minute)
				b.finished()
			})
		})
	}
}

// however many loops want to end at the same time, one stays. The naive variant reads the
// number and decides on it later, and fails the check.
func TestTheLastLoopsCannotLeaveTogether(t *testing.T) {
	survivors := func(n int, leave func(together *sync.WaitGroup) bool) int {
		var together, all sync.WaitGroup
		together.Add(n)
		var left atomic.Int64
		for range n {
			all.Go(func() {
				if leave(&together) {
					left.Add(1)
				}
			})
		}
		all.Wait()
		return n - int(left.Load())
	}
	for _, n := range []int{2, 3, 50} {
		f := loopPool{bounds: Loops{Min: 1, Max: n, Pause: -1}, changed: func(int) {}}
		f.grow(n, func() {})
		if s := survivors(n, func(together *sync.WaitGroup) bool {
			together.Done()
			together.Wait()
			return f.tryStop()
		}); s != 1 {
			t.Errorf("%d of %d loops survive, want 1", s, n)
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
			t.Error("the check lets the source's decision pass: it proves nothing")
		}
	}
}

// Slots are opened before the loops start that use them: a loop that ran first would fetch too
// little.
func TestRoomIsOpenedBeforeLoopsStart(t *testing.T) {
	open := 0
	f := loopPool{bounds: Loops{Min: 1, Max: 9}, changed: func(loops int) { open = loops }}
	for _, target := range []int{2, 5, 9} {
		f.grow(target, func() {
			if open != target {
				t.Errorf("a loop of %d starts with room for %d", target, open)
			}
		})
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
	f := loopPool{bounds: Loops{Min: 1, Max: 1000}, changed: func(int) {}}
	if n := total(func(together *sync.WaitGroup) int {
		together.Done()
		together.Wait()
		return f.grow(target, func() {})
	}); n != target {
		t.Errorf("%d loops for a target of %d", n, target)
	}
	var active atomic.Int64
	if n := total(func(together *sync.WaitGroup) int {
		missing := target - int(active.Load())
		together.Done()
		together.Wait()
		active.Add(int64(missing))
		return missing
	}); n == target {
		t.Error("the check lets the source's start pass: it proves nothing")
	}

	f = loopPool{bounds: Loops{Min: 1, Max: 7}, changed: func(int) {}}
	if n := f.grow(1<<30, func() {}); n != 7 {
		t.Errorf("%d loops, want the maximum", n)
	}
	if n := f.grow(-5, func() {}); n != 0 {
		t.Errorf("%d loops for a negative target", n)
	}
	f.close()
	f.bounds.Max = 100
	if n := f.grow(100, func() {}); n != 0 {
		t.Errorf("%d loops were started after the stop", n)
	}
}

// L-31, X-11: a queue that is full at the start, or fills while all loops are busy, starts
// loops without having been idle. The naive variant asks only when work appears after idleness.
func TestAQueueThatWasNeverIdleScalesUp(t *testing.T) {
	const want = 8
	slow := func(context.Context, *Message[job]) error { time.Sleep(500 * time.Millisecond); return nil }
	wide := func() *Options[job] {
		o := options()
		o.Concurrency = want * 32
		return o
	}
	bubble(t, func(b *bundle) {
		b.put(20_000)
		l := New(b.queue, slow, wide())
		b.run(l)
		after(2 * time.Second)
		if n := l.State().Loops; n != want {
			t.Errorf("full at the start: %d loops, want %d", n, want)
		}
		after(2 * time.Minute)
		b.finished()
	})
	bubble(t, func(b *bundle) {
		b.put(64)
		l := New(b.queue, slow, wide())
		b.run(l)
		after(100 * time.Millisecond)
		busy := l.State().Loops
		b.put(20_000)
		after(5 * time.Second)
		if n := l.State().Loops; n != want || busy >= want {
			t.Errorf("grown while busy: %d loops after %d, want %d", n, busy, want)
		}
		after(2 * time.Minute)
		b.finished()
	})
	bubble(t, func(b *bundle) {
		b.put(2_000)
		if n := naiveEdge(b, want); n == want {
			t.Error("the check lets the source's edge pass: it proves nothing")
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
func TestTheDepthIsReadSeldom(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 10_000
		b.put(n)
		o := options()
		o.Concurrency = 256
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(50 * time.Millisecond); return nil }, o)
		b.run(l)
		after(10 * time.Minute)
		b.finished()
		if reads := len(b.queue.sent("properties")); reads == 0 || reads > 1+n/256 {
			t.Errorf("the depth was read %d times for %d messages", reads, n)
		}
		if st := l.State(); st.Succeeded != n || st.DepthAt.IsZero() {
			t.Errorf("state %+v", st)
		}
	})
}

// Single messages now and then cost one poll and one delete each, and no reading of the depth:
// a batch that was not full has emptied the queue.
func TestATrickleReadsNoDepth(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, nothing, options())
		b.run(l)
		for range 50 {
			after(3 * time.Second)
			b.put(1)
		}
		after(3 * time.Second)
		b.finished()
		if n := len(b.queue.sent("properties")); n != 0 {
			t.Errorf("the depth was read %d times", n)
		}
		if l.State().Succeeded != 50 {
			t.Errorf("state %+v", l.State())
		}
	})
}

// C-03, B-16: under a backlog batches stay full, so that a message costs little more than its
// delete. Every request is counted.
func TestBatchesStayFullUnderBacklog(t *testing.T) {
	for concurrency, bound := range map[int]float64{64: 1.17, 256: 1.045, 512: 1.04} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				const n = 20_000
				b.put(n)
				b.queue.latency = 10 * time.Millisecond
				o := options()
				o.Concurrency = concurrency
				var handled atomic.Int64
				l := New(b.queue, func(_ context.Context, m *Message[job]) error {
					// Handlers of different length, so that slots free one by one.
					time.Sleep(time.Duration(10+m.Body.N%17) * time.Millisecond)
					handled.Add(1)
					return nil
				}, o)
				b.run(l)
				for handled.Load() < n-1000 {
					time.Sleep(10 * time.Millisecond)
				}
				st := l.State()
				sent := len(b.queue.sent("dequeue")) + len(b.queue.sent("delete")) + len(b.queue.sent("properties")) + len(b.queue.sent("update"))
				per := float64(sent) / float64(st.Received)
				t.Logf("concurrency %d: %.4f transactions a message, %.1f a batch", concurrency, per, float64(st.Received)/float64(st.Polls))
				if per > bound {
					t.Errorf("%.4f transactions a message, want at most %v", per, bound)
				}
				after(time.Minute)
				b.finished()
			})
		})
	}
}

// L-16: an error when reading the depth is reported and ends no loop.
func TestADepthThatCannotBeReadStopsNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.tamper = func(op string, act func() error) error {
			if op == "properties" {
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		var told atomic.Int64
		o := many(4)
		o.OnError = func(err error) {
			if errors.Is(err, queue.ErrUnavailable) {
				told.Add(1)
			}
		}
		b.put(5000)
		l := New(b.queue, nothing, o)
		b.run(l)
		after(time.Minute)
		b.finished()
		if st := l.State(); st.Succeeded != 5000 || told.Load() == 0 {
			t.Errorf("state %+v, told %d times", st, told.Load())
		}
	})
}
