package listener

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// When every handler fails for a minute the listener tries one message at a time, so that an outage
// does not use up the attempts of all messages, and continues after a success.
func TestWhenEverythingFailsOneMessageIsTriedAtATime(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 500
		b.put(n)
		outage := 20 * time.Minute
		var runs, during atomic.Int64
		o := options()
		o.Poison.MaxAttempts = 50
		o.RetryDelay = func(int, error) time.Duration { return 20 * time.Second }
		l := New(b.queue, func(context.Context, *Message[job]) error {
			runs.Add(1)
			if time.Since(b.begin) < outage {
				during.Add(1)
				return errors.New("the database is down")
			}
			return nil
		}, o)
		b.run(l)
		advance(outage)
		// Three attempts of each in the first minute, and after that one message is tried per pause of
		// up to 15 s ± a quarter.
		if d := during.Load(); d > 3*n+130 || d < 3*n+60 {
			t.Errorf("got %d runs in an outage of %v, want %d to %d", d, outage, 3*n+60, 3*n+130)
		}
		advance(5 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != n || st.Outcomes[Poisoned] != 0 {
			t.Errorf("state after the outage: got %+v, want Succeeded %d, Poisoned 0", st, n)
		}
	})
}

// A few bad messages among good ones do not open the circuit breaker.
func TestFailuresAmongSuccessesAreNotAnOutage(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1000)
		o := options()
		o.RetryDelay = func(int, error) time.Duration { return time.Second }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Body.N%10 != 0 {
				return errors.New("nine of ten")
			}
			return nil
		}, o)
		b.run(l)
		advance(2 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 100 || st.Outcomes[Poisoned] != 900 {
			t.Errorf("got state %+v; want Succeeded 100, Poisoned 900", st)
		}
	})
}

// L-08: every handler of All gets every message, and the strongest result counts.
func TestAllCallsEveryHandler(t *testing.T) {
	failed := errors.New("failed")
	for _, c := range []struct {
		results []error // of the handlers
		count   func(State) int64
	}{
		{[]error{nil, nil}, func(s State) int64 { return s.Outcomes[Deleted] }},
		{[]error{nil, dispatcher.Discard(nil)}, func(s State) int64 { return s.Outcomes[Discarded] }},
		{[]error{dispatcher.Discard(nil), dispatcher.Snooze(time.Hour)}, func(s State) int64 { return s.Outcomes[Snoozed] }},
		{[]error{dispatcher.Snooze(time.Hour), failed}, func(s State) int64 { return s.Outcomes[Retried] }},
		{[]error{dispatcher.Retry(time.Hour, failed), dispatcher.Discard(nil)}, func(s State) int64 { return s.Outcomes[Retried] }},
		{[]error{failed, dispatcher.Poison(nil), failed}, func(s State) int64 { return s.Outcomes[Poisoned] }},
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			var called atomic.Int64
			var handlers []Handler[job]
			for _, err := range c.results {
				handlers = append(handlers, func(context.Context, *Message[job]) error {
					called.Add(1)
					return err
				})
			}
			o := options()
			o.RetryDelay = func(int, error) time.Duration { return time.Hour }
			l := New(b.queue, dispatcher.All(handlers...), o)
			b.run(l)
			advance(10 * time.Second)
			b.mustFinish()
			if c.count(l.State()) != 1 || called.Load() != int64(len(c.results)) {
				t.Errorf("%v: got %d handlers called, state %+v; want all, and the strongest result once", c.results, called.Load(), l.State())
			}
		})
	}
}

func TestMiddlewareWrapsInOrder(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var steps []string
		wrap := func(name string) Middleware[job] {
			return func(next Handler[job]) Handler[job] {
				return func(ctx context.Context, m *Message[job]) error {
					steps = append(steps, name+" before")
					defer func() { steps = append(steps, name+" after") }()
					return next(ctx, m)
				}
			}
		}
		b.run(New(b.queue, dispatcher.Chain(nothing, wrap("outer"), wrap("inner")), options()))
		advance(time.Second)
		b.mustFinish()
		if want := []string{"outer before", "inner before", "inner after", "outer after"}; !slices.Equal(steps, want) {
			t.Errorf("got %q, want %q", steps, want)
		}
	})
}

// A batch handler gets full batches, or after the wait the messages there are. Its results settle
// each message separately.
func TestABatchHandlerSettlesEachMessageSeparately(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(105)
		var mu sync.Mutex
		var sizes []int
		handler := dispatcher.Batch(func(_ context.Context, ms []*Message[job]) []error {
			mu.Lock()
			sizes = append(sizes, len(ms))
			mu.Unlock()
			results := make([]error, len(ms))
			for i, m := range ms {
				if m.Body.N == 7 && m.Attempt == 1 {
					results[i] = errors.New("seven")
				}
				if m.Body.N == 8 {
					results[i] = dispatcher.Poison(errors.New("eight"))
				}
			}
			return results
		}, 20, 2*time.Second)
		l := New(b.queue, handler, options())
		b.run(l)
		advance(20 * time.Second)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 104 || st.Outcomes[Retried] != 1 || st.Outcomes[Poisoned] != 1 || b.depth(b.queue.Queue) != 0 {
			t.Errorf("got state %+v; want Succeeded 104, Retried 1, Poisoned 1, depth 0", st)
		}
		if slices.Max(sizes) != 20 || len(sizes) > 8 {
			t.Errorf("batch sizes: got %v, want at most 8 batches of at most 20", sizes)
		}
	})
}

func TestABatchHandlerThatMisbehavesFailsItsBatch(t *testing.T) {
	for name, handler := range map[string]dispatcher.BatchHandler[job]{
		"panic":   func(context.Context, []*Message[job]) []error { panic("the batch broke") },
		"results": func(context.Context, []*Message[job]) []error { return make([]error, 3) },
	} {
		bubble(t, func(b *bundle) {
			b.put(10)
			var reported errorList
			o := options()
			o.OnError = reported.add
			o.RetryDelay = func(int, error) time.Duration { return time.Hour }
			l := New(b.queue, dispatcher.Batch(handler, 10, time.Second), o)
			b.run(l)
			advance(5 * time.Second)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Retried] != 10 {
				t.Errorf("%s: got state %+v; want Retried 10", name, st)
			}
			if !strings.Contains(reported.text(), "batch") {
				t.Errorf("%s: got errors %s, want one about the batch", name, reported.text())
			}
		})
	}
}

// Leases are renewed while a batch fills and runs, and the stop does not wait for it to fill.
func TestABatchThatFillsSlowlyKeepsItsLeases(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(5)
		var size int
		o := fixed(30 * time.Second)
		o.Grace = 10 * time.Second
		l := New(b.queue, dispatcher.Batch(func(ctx context.Context, ms []*Message[job]) []error {
			size = len(ms)
			return nil
		}, 100, 10*time.Minute), o)
		b.run(l)
		advance(5 * time.Minute)
		if st := l.State(); st.Running != 5 || st.Renewed < 5*15 || st.Outcomes[Lost] != 0 {
			t.Errorf("got state %+v while it fills; want Running 5, Renewed at least %v, Lost 0", st, 5*15)
		}
		b.mustFinish()
		if st := l.State(); size != 5 || st.Outcomes[Deleted] != 5 {
			t.Errorf("got a batch of %d, state %+v; want size 5, Succeeded 5", size, st)
		}
	})
}

// A handler that runs long after its context ended is reported with its stack, and its slot can
// be freed.
func TestAStuckHandlerIsReportedAndCanBeGivenUp(t *testing.T) {
	for _, giveUp := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			b.put(1)
			release := make(chan struct{})
			var reported atomic.Pointer[dispatcher.StuckError]
			o := options()
			o.Concurrency, o.Lease.GiveUp, o.Timeout = 1, giveUp, 10*time.Second
			o.OnError = func(err error) {
				if e := (*dispatcher.StuckError)(nil); errors.As(err, &e) {
					reported.Store(e)
				}
			}
			l := New(b.queue, func(_ context.Context, m *Message[job]) error {
				if m.Body.N == 0 && m.Attempt == 1 {
					stuckHere(release)
				}
				return nil
			}, o)
			b.run(l)
			advance(time.Second)
			b.putText(`{"N":1}`)
			advance(5 * time.Minute)
			e := reported.Load()
			if e == nil || !errors.Is(e, dispatcher.ErrTimeout) || e.GivenUp != giveUp || !strings.Contains(string(e.Stacks), "stuckHere") {
				t.Fatalf("got report %+v, want ErrTimeout, GivenUp %v and stuckHere in the stack", e, giveUp)
			}
			if strings.Contains(e.Error(), "its slot was freed") != giveUp || strings.Contains(e.Error(), "its slot stays taken") == giveUp {
				t.Errorf("give up %v: the error says %q", giveUp, e.Error())
			}
			other := int64(0)
			if giveUp {
				other = 2 // the other message, and the stuck one again after its lease
			}
			if st := l.State(); st.Outcomes[Deleted] != other {
				t.Errorf("give up %v: got state %+v; want Succeeded %v", giveUp, st, other)
			}
			close(release)
			advance(time.Minute)
			b.mustFinish()
			if d := b.depth(b.queue.Queue); d != 0 {
				t.Errorf("give up %v: got %d left, state %+v; want 0 left", giveUp, d, l.State())
			}
		})
	}
}

func stuckHere(release chan struct{}) { <-release }

// V-05: settlements that came too late are counted and raise the visibility.
func TestLateSettlementsRaiseTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" || op == "delete" && len(b.queue.sent("delete")) == 0 {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Second)
		if st := l.State(); st.Late != 1 || st.Visibility != time.Minute {
			t.Errorf("got state %+v, want Late 1, Visibility 1m0s", st)
		}
		advance(time.Minute)
		b.mustFinish()
	})
}

// V-09: the observer receives every step in order.
func TestTheObserverSeesEveryStep(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var mu sync.Mutex
		var steps []string
		var scaled atomic.Int64
		record := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, fmt.Sprintf(format, args...))
		}
		o := fixed(30 * time.Second)
		o.Poison.MaxAttempts = 2
		o.RetryDelay = func(int, error) time.Duration { return time.Second }
		o.Observer = Observer{
			Polled: func(p Poll) {
				if p.Got > 0 {
					record("polled %d of %d", p.Got, p.Asked)
				}
			},
			Received: func(ms []queue.Message) { record("received %d", len(ms)) },
			Scaled:   func(_ queue.Name, loops int) { scaled.Store(int64(loops)) },
			Started:  func(d dispatcher.Delivery) { record("started attempt %d", d.Attempt) },
			Finished: func(d dispatcher.Delivery, took time.Duration, err error) {
				record("finished attempt %d after %v: %v", d.Attempt, took, err)
			},
			Renewed: func(_ dispatcher.Delivery, v time.Duration, err error) { record("renewed for %v, %v", v, err) },
			Settled: func(_ dispatcher.Delivery, o dispatcher.Outcome, _ time.Duration) { record("settled: %v", o) },
			Poisoned: func(d dispatcher.Delivery, r poison.Reason, err error) {
				record("poisoned %v: %s, %v", d.Job != "", r, err)
			},
		}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if m.Attempt == 1 {
				time.Sleep(20 * time.Second)
			}
			return errors.New("no")
		}, o)
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if n := scaled.Load(); n != 1 {
			t.Errorf("Scaled: got %d loops, want 1", n)
		}
		want := []string{
			"polled 1 of 32", "received 1", "started attempt 1", "renewed for 30s, <nil>",
			"finished attempt 1 after 20s: no", "settled: retried",
			"polled 1 of 32", "received 1", "started attempt 2", "finished attempt 2 after 0s: no",
			"poisoned true: attempts, no", "settled: poisoned",
		}
		if !slices.Equal(steps, want) {
			t.Errorf("events:\ngot\n%s\nwant\n%s", strings.Join(steps, "\n"), strings.Join(want, "\n"))
		}
	})
}

func TestTheObserverReceivesALostLease(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		var causes []error
		o := fixed(30 * time.Second)
		o.Observer.Lost = func(_ dispatcher.Delivery, cause error) { causes = append(causes, cause) }
		b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			clearQueue(b)
			<-ctx.Done()
			return nil
		}, o))
		advance(time.Minute)
		b.mustFinish()
		if len(causes) != 1 || !errors.Is(causes[0], dispatcher.ErrLeaseLost) {
			t.Errorf("got causes %v, want one ErrLeaseLost", causes)
		}
	})
}

// A job that asks to come again immediately, each time, comes once a second after its first
// deliveries. A snooze with a delay keeps it.
func TestASnoozeWithoutADelayIsNotALoop(t *testing.T) {
	for name, c := range map[string]struct {
		result error
		group  bool
		want   int // deliveries in a minute and a half
	}{
		"Snooze":                {dispatcher.Snooze(0), false, 5 + 90},
		"Snooze of an item":     {dispatcher.Snooze(0), true, 5 + 90},
		"NotRun":                {dispatcher.NotRun(0, errors.New("busy")), false, 5 + 90},
		"Snooze with its delay": {dispatcher.Snooze(10 * time.Second), false, 9},
	} {
		bubble(t, func(b *bundle) {
			if c.group {
				b.putGroup(1)
			} else {
				b.send(0)
			}
			b.queue.intercept = func(_ string, act func() error) error {
				time.Sleep(time.Millisecond)
				return act()
			}
			b.run(New(b.queue, func(context.Context, *Message[job]) error { return c.result }, options()))
			advance(90 * time.Second)
			got := len(b.queue.sent("update"))
			b.mustFinish()
			if got < c.want*8/10 || got > c.want {
				t.Errorf("%s: got %d deliveries in 90 s, want %d, or fewer by the time of the polls", name, got, c.want)
			}
		})
	}
}
