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

// The tests in this file hold single requirements. docs/requirements.md lists all of them.

// L-02, X-07: the state has the depth and the loops: running, highest number at once and
// started in total.
func TestTheStateHasDepthAndLoops(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(10 * time.Second); return nil }, withLoops(4))
		if st := l.State(); fmt.Sprintf("%+v", st) != fmt.Sprintf("%+v", State{}) {
			t.Errorf("before Run: got state %+v, want the zero State", st)
		}
		b.put(500)
		b.run(l)
		advance(time.Second)
		if st := l.State(); st.Depth != 500 || !st.DepthAt.Equal(b.begin) || st.Running != 128 {
			t.Errorf("busy: got state %+v, want Depth 500 read at once, Running 128", st)
		}
		if st := l.State(); st.Loops != 4 || st.LoopsPeak != 4 || st.LoopsStarted != 4 {
			t.Errorf("busy: got state %+v, want Loops 4, LoopsPeak 4, LoopsStarted 4", st)
		}
		advance(10 * time.Minute)
		if st := l.State(); st.Loops != 1 || st.LoopsPeak != 4 || st.LoopsStarted != 4 || st.Running != 0 {
			t.Errorf("idle: got state %+v; want Loops 1, LoopsPeak 4, LoopsStarted 4, Running 0", st)
		}
		b.mustFinish()
	})
}

// L-04, L-14: without a hook the loop waits its own interval; L-20: it grows.
func TestWaitsGrowWhileTheQueueIsEmpty(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Idle = Idle{Min: 100 * time.Millisecond, Max: 10 * time.Second}
		b.run(New(b.queue, nothing, o))
		advance(time.Minute)
		b.mustFinish()
		polls := b.queue.sent("dequeue")
		last := time.Duration(0)
		for i := 1; i < 8; i++ {
			wait := polls[i].at.Sub(polls[i-1].at)
			if wait <= last && last < 10*time.Second {
				t.Errorf("wait %d: got %v, want more than the last, %v", i, wait, last)
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
		o.Fetch.QueueWorkDetected = func(l scaling.Load) int {
			mu.Lock()
			defer mu.Unlock()
			loads = append(loads, l)
			return 1
		}
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(10 * time.Second)
		for range 3 {
			b.put(5)
			advance(10 * time.Second)
		}
		b.mustFinish()
		if len(loads) != 3 {
			t.Fatalf("got %d calls, want 3: %+v", len(loads), loads)
		}
		for _, load := range loads {
			if load.Depth != 5 || load.Loops != 1 || load.BatchSize != 32 {
				t.Errorf("load %+v; want Depth 5, Loops 1, BatchSize 32", load)
			}
		}
	})
}

// L-07, B-15: handlers get decoded jobs of their type, whatever the text was.
func TestHandlersGetDecodedJobs(t *testing.T) {
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
		advance(time.Second)
		b.mustFinish()
		if slices.Sort(got); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("got jobs %v, want [1 2 3]", got)
		}
	})
}

// L-18, B-06, Q-14, V-04: the messages of a killed worker are delivered again when their
// visibility ends. Other workers continue meanwhile, and nothing is lost.
func TestMessagesOfAKilledWorkerAreDeliveredAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		if batch, err := b.queue.Queue.Dequeue(b.Context(), 32, time.Minute); err != nil || len(batch) != 32 {
			t.Fatalf("got %d messages, error %v; want 32 and no error", len(batch), err)
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(50 * time.Second)
		if st := l.State(); st.Outcomes[Deleted] != 68 {
			t.Errorf("before the visibility ends: got %d handled, want 68", st.Outcomes[Deleted])
		}
		advance(15 * time.Second)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 100 {
			t.Errorf("got %d handled, want 100", st.Outcomes[Deleted])
		}
	})
}

// V-06, Q-13: two producers, two consumers, every job at least once.
func TestTwoProducersAndTwoConsumersHandleEveryJob(t *testing.T) {
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
		advance(10 * time.Second)
		stop()
		all.Wait()
		if len(seen) != 600 {
			t.Errorf("got %d jobs handled, want 600", len(seen))
		}
	})
}

// L-19, B-14: handlers of a batch run concurrently, and the number of loops grows with the
// depth and shrinks without.
func TestHandlersOfABatchRunConcurrently(t *testing.T) {
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
		advance(1500 * time.Millisecond)
		if peak.Load() != 32 || l.State().Outcomes[Deleted] != 32 {
			t.Errorf("got %d handlers at once, state %+v; want peak 32, Succeeded 32", peak.Load(), l.State())
		}
		b.mustFinish()
	})
}

// L-38, L-41, Q-21: an empty poll returns at once, with work there is no wait between polls, and
// no unneeded transaction is sent.
func TestPollsFollowEachOtherWithoutAWaitWhileThereIsWork(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(320)
		o := options()
		o.Concurrency, o.Fetch.MinFetch = 32, 32
		l := New(b.queue, nothing, o)
		b.run(l)
		advance(time.Millisecond)
		if st := l.State(); st.Outcomes[Deleted] != 320 {
			t.Errorf("after a millisecond: got %d handled, want 320", st.Outcomes[Deleted])
		}
		if n := len(b.queue.sent("dequeue")); n > 12 {
			t.Errorf("got %d polls for ten batches; want at most 12", n)
		}
		b.mustFinish()
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
					time.Sleep(20 * time.Second) // the lease is renewed meanwhile
					if m.Body.N == 3 && m.Attempt == 1 {
						return errors.New("interrupted")
					}
					if err := m.Save(ctx, job{m.Body.N + 1}); err != nil {
						return err
					}
				}
				return nil
			}, fixed(30*time.Second))
			b.run(l)
			advance(10 * time.Minute)
			b.mustFinish()
			if got := strings.Join(portions, " "); got != "1.0 1.1 1.2 1.3 2.3 2.4 2.5" {
				t.Errorf("foreign %v: got portions %s; want \"1.0 1.1 1.2 1.3 2.3 2.4 2.5\"", foreign, got)
			}
			if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Lost] != 0 || st.Outcomes[Retried] != 1 {
				t.Errorf("foreign %v: got state %+v; want Succeeded 1, Lost 0, Retried 1", foreign, st)
			}
		})
	}
}

func TestASaveThatFailsReturnsAnError(t *testing.T) {
	if err := (&Message[job]{}).Save(t.Context(), job{}); err == nil {
		t.Error("Save of a message from no queue: got no error, want one")
	}
	bubble(t, func(b *bundle) {
		b.send(0)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				return &queue.Error{Op: op, Kind: queue.ErrReceiptMismatch}
			}
			return act()
		}
		var errs []error
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			errs = append(errs, m.Save(ctx, job{1}), m.Save(ctx, job{2}), context.Cause(ctx))
			if m.Body.N != 0 {
				t.Errorf("body: got %+v, want N 0", m.Body)
			}
			return nil
		}, options())
		b.run(l)
		advance(time.Second)
		b.mustFinish()
		for _, err := range errs {
			if !errors.Is(err, dispatcher.ErrLeaseLost) {
				t.Errorf("got error %v, want ErrLeaseLost", err)
			}
		}
		if l.State().Outcomes[Lost] != 1 {
			t.Errorf("got state %+v; want Lost 1", l.State())
		}
	})
}

// L-13, L-17, V-08: every delivery and every error is reported, and nothing is reported after
// Run has returned.
func TestNothingIsReportedAfterRunHasReturned(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(100)
		var reports atomic.Int64
		var returned atomic.Bool
		o := options()
		report := func() {
			reports.Add(1)
			if returned.Load() {
				t.Error("got a report after Run has returned")
			}
		}
		o.OnError = func(error) { report() }
		o.Observer.Settled = func(dispatcher.Delivery, dispatcher.Outcome, time.Duration) { report() }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Body.N%2 == 0 {
				return errors.New("even")
			}
			return nil
		}, o)
		b.run(l)
		advance(time.Second / 2)
		b.mustFinish()
		returned.Store(true)
		advance(time.Minute)
		if got := reports.Load(); got != 150 {
			t.Errorf("got %d reports, want 150: 100 settlements and 50 errors", got)
		}
	})
}

// V-08: in a flood of errors all are passed to OnError, few are logged, and the number of
// suppressed lines is logged.
func TestAFloodOfErrorsIsNotAFloodOfLogs(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(2000)
		var log strings.Builder
		var reported atomic.Int64
		o := options()
		o.Logger = textLogger(&log)
		o.OnError = func(error) { reported.Add(1) }
		o.Concurrency = 2000 // more slots than failures, so that it is not an outage
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Body.N%20 == 0 {
				return nil
			}
			return fmt.Errorf("order %d: out of stock", m.Body.N)
		}, o)
		b.run(l)
		advance(25 * time.Second)
		b.mustFinish()
		if got := reported.Load(); got != 1900 {
			t.Errorf("OnError: got %d errors, want 1900", got)
		}
		logged, leftOut := 0, 0
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "delivery retried") && !strings.Contains(line, "left out of the log") {
				logged++
			}
			if _, count, ok := strings.Cut(line, "left_out="); ok {
				n, err := strconv.Atoi(strings.FieldsFunc(count, func(r rune) bool { return r < '0' || r > '9' })[0])
				if err != nil {
					t.Fatal(err)
				}
				leftOut += n
			}
		}
		if logged < 1 || logged > 4 || logged+leftOut != 1900 {
			t.Errorf("got %d lines logged and %d left out, want 1 to 4 and 1900 together:\n%s",
				logged, leftOut, log.String()[:min(log.Len(), 2000)])
		}
	})
}

// hidden is a queue that notes for how long its messages were hidden.
type hidden struct {
	queue.Queue
	all *[]time.Duration // only the listener's one loop appends
}

func (h hidden) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	*h.all = append(*h.all, visibility)
	return h.Queue.Dequeue(ctx, n, visibility)
}

// L-09, B-08: the visibility can be fixed for each queue, and bounds the wait after a crash.
func TestEachQueueHasItsVisibility(t *testing.T) {
	for _, v := range []time.Duration{5 * time.Second, time.Minute, 30 * time.Minute} {
		bubble(t, func(b *bundle) {
			b.put(1)
			o := options()
			o.Lease.Visibility = dispatcher.FixedVisibility(v)
			var asked []time.Duration
			l := New(hidden{b.queue, &asked}, nothing, o)
			b.run(l)
			advance(time.Second)
			for _, visibility := range asked {
				if visibility != v {
					t.Errorf("a dequeue hid its messages for %v, want %v", visibility, v)
				}
			}
			if len(asked) == 0 {
				t.Error("got no dequeue")
			}
			if st := l.State(); st.Visibility != v {
				t.Errorf("Visibility: got %v, want %v", st.Visibility, v)
			}
			b.mustFinish()
		})
	}
}

// P-03: a handler that outlives the visibility does not count as failed: its lease is renewed,
// and no attempt is recorded.
func TestAHandlerThatOutlivesItsVisibilityIsNotPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs := 0
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			runs++
			time.Sleep(10 * time.Minute)
			return nil
		}, fixed(30*time.Second))
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		if st := l.State(); runs != 1 || st.Outcomes[Deleted] != 1 || st.Outcomes[Poisoned] != 0 {
			t.Errorf("got %d runs, state %+v; want runs 1, Succeeded 1, Poisoned 0", runs, st)
		}
	})
}
