package listener

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// The tests in this file hold single requirements that have no better place.
// docs/requirements.md is the table of all.

// L-02, X-07: the state has the depth and the loops: running, highest number at once and
// started in total.
func TestTheStateTellsDepthAndLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(10 * time.Second); return nil }, many(4))
		if st := l.State(); st != (State{}) {
			t.Errorf("before Run: %+v", st)
		}
		b.put(500)
		b.run(l)
		after(time.Second)
		if st := l.State(); st.Depth != 500 || !st.DepthAt.Equal(b.begin) || st.Loops != 4 || st.LoopsPeak != 4 || st.LoopsStarted != 4 || st.Running != 128 {
			t.Errorf("busy: %+v", st)
		}
		after(10 * time.Minute)
		if st := l.State(); st.Loops != 1 || st.LoopsPeak != 4 || st.LoopsStarted != 4 || st.Running != 0 {
			t.Errorf("idle: %+v", st)
		}
		b.finished()
	})
}

// L-04, L-14: without a hook the loop waits its own interval; L-20: it grows.
func TestWaitsGrowWhileTheQueueIsEmpty(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Idle = scaling.Idle{Min: 100 * time.Millisecond, Max: 10 * time.Second}
		b.run(New(b.queue, nothing, o))
		after(time.Minute)
		b.finished()
		polls := b.queue.sent("dequeue")
		last := time.Duration(0)
		for i := 1; i < 8; i++ {
			wait := polls[i].at.Sub(polls[i-1].at)
			if wait <= last && last < 10*time.Second {
				t.Errorf("wait %d is %v after %v", i, wait, last)
			}
			last = wait
		}
	})
}

// L-06, L-15, L-30: the hook is called once when work appears after idleness, with the known
// load, and not again while the work continues.
func TestWorkOnAnIdleQueueIsDetectedOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		var loads []scaling.Load
		var mu sync.Mutex
		o := options()
		o.QueueWorkDetected = func(l scaling.Load) int {
			mu.Lock()
			defer mu.Unlock()
			loads = append(loads, l)
			return 1
		}
		l := New(b.queue, nothing, o)
		b.run(l)
		after(10 * time.Second)
		for range 3 {
			b.put(5)
			after(10 * time.Second)
		}
		b.finished()
		if len(loads) != 3 {
			t.Fatalf("detected %d times, want 3: %+v", len(loads), loads)
		}
		for _, load := range loads {
			if load.Depth != 5 || load.Loops != 1 || load.BatchSize != 32 {
				t.Errorf("load %+v", load)
			}
		}
	})
}

// L-07, B-15: handlers get decoded jobs of their type, whatever the text was.
func TestHandlersSeeTheTypeAndNotTheText(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText(`{"N":1}`)
		b.putText(base64.StdEncoding.EncodeToString([]byte(`{"N":2}`)))
		b.send(3)
		var got []int
		var mu sync.Mutex
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, m.Body.N)
			return nil
		}, options())
		b.run(l)
		after(time.Second)
		b.finished()
		if slices.Sort(got); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got %v", got)
		}
	})
}

// L-18, B-06, Q-14, V-04: the messages of a worker that died are delivered again when their
// visibility ends, other workers continue meanwhile, and nothing is lost.
func TestWhatADeadWorkerHeldComesBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		if batch, err := b.queue.Queue.Dequeue(b.Context(), 32, time.Minute); err != nil || len(batch) != 32 {
			t.Fatal(len(batch), err)
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		after(50 * time.Second)
		if st := l.State(); st.Succeeded != 68 {
			t.Errorf("before its visibility ends %d were handled, want 68", st.Succeeded)
		}
		after(15 * time.Second)
		b.finished()
		if st := l.State(); st.Succeeded != 100 {
			t.Errorf("%d were handled, want all", st.Succeeded)
		}
	})
}

// V-06, Q-13: two producers, two consumers, every job at least once.
func TestTwoProducersAndTwoConsumers(t *testing.T) {
	bubble(t, func(b *bundle) {
		var mu sync.Mutex
		seen := map[int]int{}
		handler := func(_ context.Context, m *Message[job]) error {
			time.Sleep(5 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			seen[m.Body.N]++
			return nil
		}
		ctx, stop := context.WithCancel(b.Context())
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { _ = New(b.queue, handler, options()).Run(ctx) })
		}
		var producers sync.WaitGroup
		for p := range 2 {
			producers.Go(func() {
				for i := range 300 {
					b.send(p*300 + i)
					time.Sleep(time.Millisecond)
				}
			})
		}
		producers.Wait()
		after(10 * time.Second)
		stop()
		all.Wait()
		if len(seen) != 600 {
			t.Errorf("%d of 600 jobs were handled", len(seen))
		}
	})
}

// L-19, B-14: handlers of a batch run concurrently, and the number of loops grows with the
// depth and shrinks without.
func TestABatchRunsInParallel(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(32)
		var peak, now atomic.Int64
		l := New(b.queue, func(context.Context, *Message[job]) error {
			peak.Store(max(peak.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
			return nil
		}, options())
		b.run(l)
		after(1500 * time.Millisecond)
		if peak.Load() != 32 || l.State().Succeeded != 32 {
			t.Errorf("%d at once, state %+v", peak.Load(), l.State())
		}
		b.finished()
	})
}

// L-38, L-41, Q-21: an empty poll is answered at once; with work there is no wait between
// polls; and no unneeded transaction is sent.
func TestNoWaitWithWorkAndNoPollWithout(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(320)
		o := options()
		o.Concurrency, o.MinFetch = 32, 32
		l := New(b.queue, nothing, o)
		b.run(l)
		after(time.Millisecond)
		if st := l.State(); st.Succeeded != 320 {
			t.Errorf("after a millisecond %d of 320 were handled", st.Succeeded)
		}
		if n := len(b.queue.sent("dequeue")); n > 12 {
			t.Errorf("%d polls for ten batches", n)
		}
		b.finished()
	})
}

// B-09, B-11: a handler saves its progress in the message and continues from there after a
// crash.
func TestProgressIsSavedInTheMessage(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			if foreign {
				b.putText(`{"N":0}`)
			} else {
				b.send(0)
			}
			var portions []string
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				for m.Body.N < 6 {
					portions = append(portions, fmt.Sprintf("%d.%d", m.Attempt, m.Body.N))
					time.Sleep(20 * time.Second) // renewals go on between
					if m.Body.N == 3 && m.Attempt == 1 {
						return errors.New("half way")
					}
					if err := m.Save(ctx, job{m.Body.N + 1}); err != nil {
						return err
					}
				}
				return nil
			}, fixed(30*time.Second))
			b.run(l)
			after(10 * time.Minute)
			b.finished()
			if got := strings.Join(portions, " "); got != "1.0 1.1 1.2 1.3 2.3 2.4 2.5" {
				t.Errorf("foreign %v: portions %s", foreign, got)
			}
			if st := l.State(); st.Succeeded != 1 || st.Lost != 0 || st.Retried != 1 {
				t.Errorf("foreign %v: state %+v", foreign, st)
			}
		})
	}
}

func TestASaveThatCannotBeIsAnError(t *testing.T) {
	if err := (&Message[job]{}).Save(t.Context(), job{}); err == nil {
		t.Error("a message from no queue was saved")
	}
	bubble(t, func(b *bundle) {
		b.send(0)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "update" {
				return &queue.Error{Op: op, Kind: queue.ErrReceiptMismatch}
			}
			return act()
		}
		var errs []error
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			errs = append(errs, m.Save(ctx, job{1}), m.Save(ctx, job{2}), context.Cause(ctx))
			if m.Body.N != 0 {
				t.Errorf("the body became %+v", m.Body)
			}
			return nil
		}, options())
		b.run(l)
		after(time.Second)
		b.finished()
		for _, err := range errs {
			if !errors.Is(err, dispatcher.ErrLeaseLost) {
				t.Errorf("got %v, want the lease lost", err)
			}
		}
		if l.State().Lost != 1 {
			t.Errorf("state %+v, want 1 lost", l.State())
		}
	})
}

// L-13, L-17, V-08: every delivery and every error is reported, and nothing is reported after
// Run has returned.
func TestNothingIsToldAfterRunHasReturned(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		var told atomic.Int64
		over := atomic.Bool{}
		o := options()
		tell := func() {
			told.Add(1)
			if over.Load() {
				t.Error("told after Run has returned")
			}
		}
		o.OnError = func(error) { tell() }
		o.Observer.Settled = func(dispatcher.Delivery, dispatcher.Outcome, time.Duration) { tell() }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Body.N%2 == 0 {
				return errors.New("even")
			}
			return nil
		}, o)
		b.run(l)
		after(time.Second / 2)
		b.finished()
		over.Store(true)
		after(time.Minute)
		if told.Load() != 150 {
			t.Errorf("told %d times, want 100 settlements and 50 errors", told.Load())
		}
	})
}

// V-08: in a flood of errors all are passed to OnError, few are logged, and the number of
// suppressed lines is logged.
func TestAFloodOfErrorsIsNotAFloodOfLogs(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2000)
		var log strings.Builder
		var told atomic.Int64
		o := options()
		o.Logger = textLogger(&log)
		o.OnError = func(error) { told.Add(1) }
		o.Concurrency = 2000 // so that it is no outage
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Body.N%20 == 0 {
				return nil
			}
			return fmt.Errorf("order %d: out of stock", m.Body.N)
		}, o)
		b.run(l)
		after(25 * time.Second)
		b.finished()
		if told.Load() != 1900 {
			t.Errorf("told %d times, want 1900", told.Load())
		}
		said, left := 0, 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "delivery retried") && !strings.Contains(line, "left out of the log") {
				said++
			}
			if _, count, ok := strings.Cut(line, "left_out="); ok {
				n, err := strconv.Atoi(strings.FieldsFunc(count, func(r rune) bool { return r < '0' || r > '9' })[0])
				if err != nil {
					t.Fatal(err)
				}
				left += n
			}
		}
		if said < 1 || said > 4 || said+left != 1900 {
			t.Errorf("%d lines were logged and %d left out, want a few and 1900 together:\n%s", said, left, log.String()[:min(log.Len(), 2000)])
		}
	})
}

// L-09, B-08: the visibility can be fixed for each queue, and bounds the wait after a crash.
func TestEachQueueHasItsVisibility(t *testing.T) {
	for _, v := range []time.Duration{5 * time.Second, time.Minute, 30 * time.Minute} {
		bubble(t, func(b *bundle) {
			b.put(1)
			o := options()
			o.Visibility = dispatcher.Fixed(v)
			l := New(b.queue, nothing, o)
			b.run(l)
			after(time.Second)
			if st := l.State(); st.Visibility != v {
				t.Errorf("visibility %v, want %v", st.Visibility, v)
			}
			b.finished()
		})
	}
}

// P-03: a handler that outlives the visibility does not count as failed: its lease is renewed,
// and no attempt is recorded.
func TestAHandlerThatOutlivesItsVisibilityIsNoPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs := 0
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			runs++
			time.Sleep(10 * time.Minute)
			return nil
		}, fixed(30*time.Second))
		b.run(l)
		after(time.Hour)
		b.finished()
		if st := l.State(); runs != 1 || st.Succeeded != 1 || st.Poisoned != 0 {
			t.Errorf("%d runs, state %+v", runs, st)
		}
	})
}
