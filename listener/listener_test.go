package listener

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// L-12: every success is deleted after its handler has returned.
func TestEverySuccessIsDeletedAfterItsHandler(t *testing.T) {
	bubble(t, func(b *bundle) {
		const n = 1000
		b.put(n)
		var mu sync.Mutex
		seen := map[int]int{}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			seen[m.Body.N]++
			if m.Attempt != 1 {
				return fmt.Errorf("attempt %d at the first run", m.Attempt)
			}
			return nil
		}, options())
		b.run(l)
		after(10 * time.Second)
		b.finished()

		if len(seen) != n {
			t.Errorf("%d of %d jobs were handled", len(seen), n)
		}
		for job, runs := range seen {
			if runs != 1 {
				t.Errorf("job %d ran %d times", job, runs)
			}
		}
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("%d messages are left", d)
		}
		if st := l.State(); st.Succeeded != n || st.Received != n || st.Errors != 0 || st.Loops != 0 || st.Running != 0 {
			t.Errorf("state %+v", st)
		}
	})
}

// B-12: a message stays in the queue while its handler runs and is deleted only after the
// handler has returned.
func TestNothingIsDeletedBeforeItsHandlerReturned(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		release := make(chan struct{})
		l := New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, options())
		b.run(l)
		after(5 * time.Second)
		if d := b.depth(b.queue.Queue); d != 1 || len(b.queue.sent("delete")) != 0 {
			t.Errorf("depth %d, deletes %d while the handler runs", d, len(b.queue.sent("delete")))
		}
		close(release)
		after(time.Second)
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("depth %d after it returned", d)
		}
		b.finished()
	})
}

// Invariant 3: a dequeue requests no more messages than there are free slots, and no more than
// Concurrency handlers run.
func TestNoMessageIsHeldThatDoesNotRun(t *testing.T) {
	for _, concurrency := range []int{1, 7, 32, 100} {
		t.Run(fmt.Sprint(concurrency), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.put(500)
				var running, peak atomic.Int64
				o := options()
				o.Concurrency = concurrency
				l := New(b.queue, func(context.Context, *Message[job]) error {
					now := running.Add(1)
					for {
						old := peak.Load()
						if now <= old || peak.CompareAndSwap(old, now) {
							break
						}
					}
					time.Sleep(100 * time.Millisecond)
					running.Add(-1)
					return nil
				}, o)
				b.run(l)
				for range 100 {
					after(37 * time.Millisecond)
					hidden := b.depth(b.queue.Queue) - b.visible()
					_, settling := 0, l.State().Settling
					if held := running.Load() + int64(settling); hidden > held {
						t.Fatalf("%d messages are hidden, %d are running or being settled", hidden, held)
					}
				}
				after(time.Minute)
				b.finished()
				if peak.Load() > int64(concurrency) {
					t.Errorf("%d handlers ran at once, want at most %d", peak.Load(), concurrency)
				}
				if d := b.depth(b.queue.Queue); d != 0 {
					t.Errorf("%d messages are left", d)
				}
			})
		})
	}
}

// visible returns the number of visible messages of a small queue; a peek shows 32 at most.
func (b *bundle) visible() int64 {
	b.Helper()
	batch, err := b.queue.Queue.Peek(b.Context(), queue.MaxBatch)
	if err != nil {
		b.Fatal(err)
	}
	if len(batch) < queue.MaxBatch {
		return int64(len(batch))
	}
	st := b.depth(b.queue.Queue)
	return st // many are waiting: hidden counts as none
}

// P-01, P-04: a handler runs exactly MaxAttempts times with a growing delay, and then the
// message is in the poison queue with its record.
func TestAFailingMessageIsPoisonAfterItsAttempts(t *testing.T) {
	bubble(t, func(b *bundle) {
		sent := b.putText(`{"N":7}`)
		var runs []time.Time
		var attempts []int
		o := options()
		o.RetryDelay = func(attempt int, _ error) time.Duration { return time.Duration(attempt*attempt) * 10 * time.Second }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			runs, attempts = append(runs, time.Now()), append(attempts, m.Attempt)
			return errors.New("out of flour")
		}, o)
		b.run(l)
		after(time.Hour)
		b.finished()

		if fmt.Sprint(attempts) != "[1 2 3 4 5]" {
			t.Fatalf("attempts %v, want 1 to 5", attempts)
		}
		for i := 1; i < len(runs); i++ {
			want := time.Duration(i*i) * 10 * time.Second
			if gap := runs[i].Sub(runs[i-1]); gap < want || gap > want+2*time.Second {
				t.Errorf("attempt %d came %v after the last, want %v and at most two polls", i+1, gap, want)
			}
		}
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("%d messages are left in the queue", d)
		}
		batch := b.poisoned()
		if len(batch) != 1 {
			t.Fatalf("%d messages are in the poison queue", len(batch))
		}
		if batch[0].Expires.Year() != 9999 {
			t.Errorf("the poison copy expires at %v, want never (P-05)", batch[0].Expires)
		}
		r, err := poison.ParseRecord(batch[0].Text)
		if err != nil {
			t.Fatal(err)
		}
		if r.ID != sent.ID || r.Text != `{"N":7}` || r.Queue != "jobs" || r.Account != "test" || r.Attempts != 5 ||
			r.DequeueCount != 5 || r.Reason != poison.ReasonAttempts || !strings.Contains(r.Error, "out of flour") ||
			!r.Inserted.Equal(sent.Inserted) || r.Expires != nil {
			t.Errorf("record %+v", r)
		}
		if st := l.State(); st.Poisoned != 1 || st.Retried != 4 {
			t.Errorf("state %+v", st)
		}
	})
}

// X-25, P-01: a message that killed its worker every time is poison before it is handled again.
func TestAMessageOutOfDeliveriesIsNotHandledAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		for range 5 {
			if _, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Second); err != nil {
				t.Fatal(err)
			}
			after(2 * time.Second)
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		after(time.Minute)
		b.finished()
		if runs != 0 || len(b.poisoned()) != 1 {
			t.Errorf("%d runs, %d in the poison queue; want none and one", runs, len(b.poisoned()))
		}
	})
}

func TestHandlersSayWhatBecomesOfTheirMessage(t *testing.T) {
	for _, c := range []struct {
		name     string
		err      error
		runs     int
		poisoned int
	}{
		{"discard", fmt.Errorf("too old: %w", dispatcher.Discard(errors.New("nobody wants it"))), 1, 0},
		{"poison", dispatcher.Poison(errors.New("bad address")), 1, 1},
		{"retry", dispatcher.Retry(time.Minute, errors.New("later")), 5, 1},
		{"retry at once", dispatcher.Retry(-1, errors.New("now")), 5, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.put(1)
				runs := 0
				l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return c.err }, options())
				b.run(l)
				after(10 * time.Minute)
				b.finished()
				poisoned := 0
				if l.State().Poisoned > 0 {
					poisoned = len(b.poisoned())
				}
				if runs != c.runs || poisoned != c.poisoned || b.depth(b.queue.Queue) != 0 {
					t.Errorf("%d runs, %d poisoned, %d left; want %d, %d, 0", runs, poisoned, b.depth(b.queue.Queue), c.runs, c.poisoned)
				}
			})
		})
	}
}

// Invariant 1: a message that expires before another attempt could be made is moved to the
// poison queue and not dropped by the service.
func TestAMessageThatWouldExpireIsPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		if _, err := b.queue.Queue.Enqueue(b.Context(), `{"N":1}`, &queue.EnqueueOptions{TTL: 90 * time.Second}); err != nil {
			t.Fatal(err)
		}
		runs := 0
		o := options()
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, o)
		b.run(l)
		after(10 * time.Minute)
		b.finished()
		batch := b.poisoned()
		if len(batch) != 1 {
			t.Fatalf("%d in the poison queue after %d runs", len(batch), runs)
		}
		r, err := poison.ParseRecord(batch[0].Text)
		if err != nil || r.Reason != poison.ReasonExpiring || runs < 2 || r.Expires == nil {
			t.Errorf("record %+v, %v after %d runs; want it expiring after at least two", r, err, runs)
		}
	})
}

// an undecodable message is poison at once, with the reason, and its handler never runs.
// The naive variant gives it back, and the check detects that.
func TestAMalformedMessageIsPoisonAtOnce(t *testing.T) {
	for _, text := range []string{"", "{", "[1,2]", `{"N":"seven"}`, "null null", "just words"} {
		bubble(t, func(b *bundle) {
			b.putText(text)
			l := New(b.queue, func(context.Context, *Message[job]) error {
				t.Errorf("%q was handled", text)
				return nil
			}, options())
			b.run(l)
			after(5 * time.Second)
			b.finished()
			if !goneAfterOneDelivery(b) {
				t.Errorf("%q is still in the queue", text)
			}
			r, err := poison.ParseRecord(b.poisoned()[0].Text)
			if err != nil || r.Reason != poison.ReasonUndecodable || r.Error == "" || r.Text != text {
				t.Errorf("%q: record %+v, %v", text, r, err)
			}
		})
	}
	bubble(t, func(b *bundle) {
		b.putText("{")
		naiveParseCaught(b)
		if goneAfterOneDelivery(b) {
			t.Error("the check lets the source's caught parse error pass: it proves nothing")
		}
	})
}

// goneAfterOneDelivery is the check of X-16.
func goneAfterOneDelivery(b *bundle) bool { return b.depth(b.queue.Queue) == 0 }

// naiveParseCaught ignores a parse error and leaves the message to its visibility, again and
// again.
func naiveParseCaught(b *bundle) {
	_, _ = b.queue.Queue.Dequeue(b.Context(), 1, 30*time.Second)
}

// a handler's failure, panic or Goexit affects only its own message; the others of its
// batch are deleted.
func TestOneFailureIsNotTheBatchs(t *testing.T) {
	isolated := func(deleted, n int64) bool { return deleted == n-3 }
	bubble(t, func(b *bundle) {
		const n = 32
		b.put(n)
		var failures []error
		var mu sync.Mutex
		o := options()
		o.OnError = func(err error) { mu.Lock(); defer mu.Unlock(); failures = append(failures, err) }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			switch m.Body.N {
			case 3:
				panic("the millstone broke")
			case 9:
				return errors.New("no water")
			case 20:
				runtime.Goexit()
			}
			return nil
		}, o)
		b.run(l)
		after(900 * time.Millisecond) // before the first retry
		st := l.State()
		if !isolated(st.Succeeded, n) || st.Retried != 3 {
			t.Errorf("state %+v, want all but three deleted", st)
		}
		mu.Lock()
		text := errors.Join(failures...).Error()
		var p *dispatcher.PanicError
		if !errors.As(errors.Join(failures...), &p) || !strings.Contains(string(p.Stack), "listener_test.go") {
			t.Errorf("the panic came without its stack")
		}
		mu.Unlock()
		for _, want := range []string{"the millstone broke", "no water", "Goexit"} {
			if !strings.Contains(text, want) {
				t.Errorf("nobody was told of %q in %q", want, text)
			}
		}
		b.finished()
	})
	bubble(t, func(b *bundle) {
		const n = 32
		b.put(n)
		if isolated(naiveBatch(b), n) {
			t.Error("the check lets the source's query pass: it proves nothing")
		}
	})
}

// naiveBatch stops at the first failure and deletes nothing of the batch afterwards.
func naiveBatch(b *bundle) (deleted int64) {
	batch, _ := b.queue.Queue.Dequeue(b.Context(), 32, 30*time.Second)
	for i, m := range batch {
		if i == 3 || i == 9 || i == 20 {
			return deleted // one aggregate error
		}
		if b.queue.Queue.Delete(b.Context(), m.Lease) == nil {
			deleted++
		}
	}
	return deleted
}

// after an error the loop waits as after a first error, not for the long interval from
// before the work.
func TestWorkResetsTheWaits(t *testing.T) {
	// Idle long, then work, then one error: how long until the next poll?
	wait := func(b *bundle, run func(b *bundle)) time.Duration {
		errorAt := time.Time{}
		b.queue.tamper = func(op string, act func() error) error {
			if op == "dequeue" && errorAt.IsZero() && len(b.queue.sent("delete")) > 0 {
				errorAt = time.Now()
				return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
			}
			return act()
		}
		run(b)
		for _, c := range b.queue.sent("dequeue") {
			if c.at.After(errorAt) {
				return c.at.Sub(errorAt)
			}
		}
		return time.Hour
	}
	short := func(d time.Duration) bool { return d < 2*time.Second }
	const longest = time.Minute

	bubble(t, func(b *bundle) {
		o := options()
		o.Idle = scaling.Idle{Max: longest}
		d := wait(b, func(b *bundle) {
			b.run(New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o))
			after(10 * time.Minute)
			b.put(1)
			after(10 * time.Minute)
			b.finished()
		})
		if !short(d) {
			t.Errorf("the poll after the error came after %v", d)
		}
	})
	bubble(t, func(b *bundle) {
		if short(wait(b, func(b *bundle) { naiveInterval(b, longest) })) {
			t.Error("the check lets the source's interval pass: it proves nothing")
		}
	})
}

// naiveInterval is a loop whose interval survives the work.
func naiveInterval(b *bundle, longest time.Duration) {
	interval := time.Second
	for range 6 {
		batch, err := b.queue.Dequeue(b.Context(), 1, time.Minute)
		switch {
		case err != nil:
			time.Sleep(interval)
		case len(batch) == 0:
			interval = longest
			time.Sleep(interval)
			b.put(1)
		default:
			_ = b.queue.Delete(b.Context(), batch[0].Lease) // and on, with no delay
		}
	}
}

// B-04, L-16, B-13, B-18: errors never end a loop, a busy service is polled less and less
// often, and the log is not flooded.
func TestABusyServiceIsBackedOffFrom(t *testing.T) {
	bubble(t, func(b *bundle) {
		var log strings.Builder
		o := options()
		o.Logger = textLogger(&log)
		b.queue.tamper = func(op string, act func() error) error {
			if time.Since(b.begin) < 10*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy", RequestID: "r-1"}
			}
			return act()
		}
		b.put(1)
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		after(10 * time.Minute)
		if polls := len(b.queue.sent("dequeue")); polls < 10 || polls > 60 {
			t.Errorf("%d polls in ten minutes of 503", polls)
		}
		after(time.Minute)
		b.finished()
		if l.State().Succeeded != 1 {
			t.Errorf("the job was not handled when the service came back: %+v", l.State())
		}
		if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 60 {
			t.Errorf("%d log lines", lines)
		}
		for _, want := range []string{"503", "ServerBusy", "r-1", "test/jobs"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log does not say %q: %s", want, log.String())
			}
		}
	})
}

func TestADeniedListenerEndsWithAHint(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.tamper = func(op string, _ func() error) error {
			return queue.Explain(&queue.Error{Kind: queue.ErrUnauthorized, Status: 403, Code: "AuthenticationFailed"}, op, b.queue.Name(), "")
		}
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return nil }, options()))
		err := <-b.done
		if !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "check the key or the role") {
			t.Errorf("got %v, want unauthorized and a hint", err)
		}
		b.stop()
	})
}

func TestADenialAfterWorkIsWaitedOut(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.tamper = func(op string, act func() error) error {
			if d := time.Since(b.begin); d > time.Minute && d < 2*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		after(90 * time.Second)
		b.put(1)
		after(2 * time.Minute)
		b.finished()
		if l.State().Succeeded != 1 {
			t.Error("the listener did not come back")
		}
	})
}

func TestAMissingQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		later := &wire{Queue: b.queue.Queue.Sibling("-later"), calls: b.queue.calls}
		l := New(later, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		after(time.Minute)
		if err := later.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := later.Queue.Enqueue(t.Context(), `{"N":1}`, nil); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Second)
		b.finished()
		if st := l.State(); st.Succeeded != 1 || st.Errors == 0 {
			t.Errorf("state %+v", st)
		}
	})
}

// L-03: invalid options are refused before anything is sent.
func TestBadOptionsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	for name, change := range map[string]func(*Options[job]){
		"concurrency":              func(o *Options[job]) { o.Concurrency = -1 },
		"batch size":               func(o *Options[job]) { o.BatchSize = 33 },
		"loops":                    func(o *Options[job]) { o.Loops = Loops{Min: -1} },
		"the minimum":              func(o *Options[job]) { o.Loops = Loops{Min: 3, Max: 2} },
		"idle":                     func(o *Options[job]) { o.Idle = scaling.Idle{Min: 2 * time.Second, Max: time.Second} },
		"visibility":               func(o *Options[job]) { o.Visibility = dispatcher.Visibility{Min: time.Second} },
		"minimum fetch":            func(o *Options[job]) { o.MinFetch = -1 },
		"time-out":                 func(o *Options[job]) { o.Timeout = -1 },
		"poison":                   func(o *Options[job]) { o.Poison.MaxAttempts = -1 },
		"settle":                   func(o *Options[job]) { o.SettleTimeout = -1 },
		"set only one":             func(o *Options[job]) { o.Poison = poison.Policy{Keep: true, Queue: o.Poison.Queue} },
		"moved to itself for ever": nil,
	} {
		bubble(t, func(b *bundle) {
			o := options()
			switch name {
			case "set only one":
				o.Poison = poison.Policy{Keep: true, Queue: b.queue.Sibling("-x")}
			case "moved to itself for ever":
				o.Poison.Queue = b.queue
			default:
				change(o)
			}
			err := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o).Run(b.Context())
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "test/jobs") {
				t.Errorf("%s: got %v", name, err)
			}
			if len(b.queue.log) > 0 {
				t.Errorf("%s: %d requests were sent", name, len(b.queue.log))
			}
		})
	}
	if err := New[job](nil, nil, nil).Run(t.Context()); err == nil {
		t.Error("a listener without a queue ran")
	}
	bubble(t, func(b *bundle) {
		if err := New[job](b.queue, nil, nil).Run(b.Context()); err == nil {
			t.Error("a listener without a handler ran")
		}
	})
}

func TestAListenerRunsOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		after(time.Second)
		if err := l.Run(b.Context()); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("got %v", err)
		}
		b.finished()
	})
}
