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
	"github.com/millrace/millrace/queue/driver"
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
		advance(10 * time.Second)
		b.mustFinish()

		if len(seen) != n {
			t.Errorf("got %d jobs handled, want %d", len(seen), n)
		}
		for job, runs := range seen {
			if runs != 1 {
				t.Errorf("job %d: got %d runs, want 1", job, runs)
			}
		}
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("got %d messages left, want 0", d)
		}
		if st := l.State(); st.Outcomes[Deleted] != n || st.Received != n || st.Errors != 0 || st.Loops != 0 || st.Running != 0 {
			t.Errorf("got state %+v; want Succeeded %v, Received %v, Errors 0, Loops 0, Running 0", st, n, n)
		}
	})
}

// B-12: a message stays in the queue while its handler runs and is deleted only after the
// handler has returned.
func TestAMessageIsDeletedOnlyAfterItsHandlerReturned(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		release := make(chan struct{})
		l := New(b.queue, func(context.Context, *Message[job]) error { <-release; return nil }, options())
		b.run(l)
		advance(5 * time.Second)
		if d := b.depth(b.queue.Queue); d != 1 || len(b.queue.sent("delete")) != 0 {
			t.Errorf("got depth %d and %d deletes while the handler runs, want 1 and 0", d, len(b.queue.sent("delete")))
		}
		close(release)
		advance(time.Second)
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("got depth %d after it returned, want 0", d)
		}
		b.mustFinish()
	})
}

// Invariant 3: a dequeue requests no more messages than there are free slots, and no more than
// Concurrency handlers run.
func TestNoMessageIsHeldWithoutRunning(t *testing.T) {
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
					advance(37 * time.Millisecond)
					hidden := b.depth(b.queue.Queue) - b.visible()
					settling := l.State().Settling
					if held := running.Load() + int64(settling); hidden > held {
						t.Fatalf("got %d messages hidden, want at most %d, those running or being settled", hidden, held)
					}
				}
				advance(time.Minute)
				b.mustFinish()
				if peak.Load() > int64(concurrency) {
					t.Errorf("got %d handlers at once, want at most %d", peak.Load(), concurrency)
				}
				if d := b.depth(b.queue.Queue); d != 0 {
					t.Errorf("got %d messages left, want 0", d)
				}
			})
		})
	}
}

// visible returns the number of visible messages, or the depth if that is 32 or more: a peek
// shows no more.
func (b *bundle) visible() int64 {
	b.Helper()
	batch, err := b.queue.Queue.Peek(b.Context(), queue.MaxBatch)
	if err != nil {
		b.Fatal(err)
	}
	if len(batch) < queue.MaxBatch {
		return int64(len(batch))
	}
	return b.depth(b.queue.Queue)
}

// P-01, P-04, P-05: a handler runs exactly MaxAttempts times with a growing delay, and then the
// message is in the poison queue with its record, where it never expires.
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
		advance(time.Hour)
		b.mustFinish()

		if fmt.Sprint(attempts) != "[1 2 3 4 5]" {
			t.Fatalf("got attempts %v, want 1 to 5", attempts)
		}
		for i := 1; i < len(runs); i++ {
			want := time.Duration(i*i) * 10 * time.Second
			if gap := runs[i].Sub(runs[i-1]); gap < want || gap > want+2*time.Second {
				t.Errorf("delay before attempt %d: got %v, want %v and at most 2 s more", i+1, gap, want)
			}
		}
		if d := b.depth(b.queue.Queue); d != 0 {
			t.Errorf("got %d messages left in the queue, want 0", d)
		}
		batch := b.poisoned()
		if len(batch) != 1 {
			t.Fatalf("got %d messages in the poison queue, want 1", len(batch))
		}
		if batch[0].Expires.Year() != 9999 {
			t.Errorf("expiry of the copy: got %v, want never", batch[0].Expires)
		}
		r, err := poison.ParseRecord(batch[0].Text)
		if err != nil {
			t.Fatal(err)
		}
		if r.ID != sent.ID || r.Text != `{"N":7}` || r.Queue != "jobs" || r.Account != "test" || r.Attempts != 5 ||
			r.DequeueCount != 5 || r.Reason != poison.ReasonAttempts || !strings.Contains(r.Error, "out of flour") ||
			!r.Inserted.Equal(sent.Inserted) || r.Expires != nil {
			t.Errorf("got record %+v, want that of message %s after 5 attempts with its error", r, string(sent.ID))
		}
		if st := l.State(); st.Outcomes[Poisoned] != 1 || st.Outcomes[Retried] != 4 {
			t.Errorf("got state %+v; want Poisoned 1, Retried 4", st)
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
			advance(2 * time.Second)
		}
		runs := 0
		l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
		b.run(l)
		advance(time.Minute)
		b.mustFinish()
		if runs != 0 || len(b.poisoned()) != 1 {
			t.Errorf("got %d runs and %d in the poison queue, want 0 and 1", runs, len(b.poisoned()))
		}
	})
}

func TestHandlersChooseTheOutcome(t *testing.T) {
	for _, c := range []struct {
		name         string
		err          error
		wantRuns     int
		wantPoisoned int
	}{
		{"discard", fmt.Errorf("too old: %w", dispatcher.Discard(errors.New("obsolete"))), 1, 0},
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
				advance(10 * time.Minute)
				b.mustFinish()
				poisoned := 0
				if l.State().Outcomes[Poisoned] > 0 {
					poisoned = len(b.poisoned())
				}
				if left := b.depth(b.queue.Queue); runs != c.wantRuns || poisoned != c.wantPoisoned || left != 0 {
					t.Errorf("got %d runs, %d poisoned, %d left; want %d, %d, 0", runs, poisoned, left, c.wantRuns, c.wantPoisoned)
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
		advance(10 * time.Minute)
		b.mustFinish()
		batch := b.poisoned()
		if len(batch) != 1 {
			t.Fatalf("got %d in the poison queue after %d runs, want 1", len(batch), runs)
		}
		r, err := poison.ParseRecord(batch[0].Text)
		if err != nil || r.Reason != poison.ReasonExpiring || runs < 2 || r.Expires == nil {
			t.Errorf("got record %+v, %v after %d runs; want the reason expiring after at least 2", r, err, runs)
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
				t.Errorf("message %q: got handled, want it poison", text)
				return nil
			}, options())
			b.run(l)
			advance(5 * time.Second)
			b.mustFinish()
			if !goneAfterOneDelivery(b) {
				t.Errorf("%q: still in the queue after one delivery, want it gone", text)
			}
			r, err := poison.ParseRecord(b.poisoned()[0].Text)
			if err != nil || r.Reason != poison.ReasonUndecodable || r.Error == "" || r.Text != text {
				t.Errorf("%q: got record %+v, %v; want Reason ReasonUndecodable, Error not \"\", Text %v, no error", text, r, err, text)
			}
		})
	}
	bubble(t, func(b *bundle) {
		b.putText("{")
		naiveParse(b)
		if goneAfterOneDelivery(b) {
			t.Error("check of the source's caught parse error: got a pass, want a failure")
		}
	})
}

// goneAfterOneDelivery is the check of X-16.
func goneAfterOneDelivery(b *bundle) bool { return b.depth(b.queue.Queue) == 0 }

// naiveParse ignores a parse error and lets the message reappear after each visibility timeout.
func naiveParse(b *bundle) {
	_, _ = b.queue.Queue.Dequeue(b.Context(), 1, 30*time.Second)
}

// a handler's failure, panic or Goexit affects only its own message; the others of its
// batch are deleted.
func TestAFailureAffectsOnlyItsOwnMessage(t *testing.T) {
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
		advance(900 * time.Millisecond) // before the first retry
		st := l.State()
		if !isolated(st.Outcomes[Deleted], n) || st.Outcomes[Retried] != 3 {
			t.Errorf("got state %+v, want all but three deleted and Retried 3", st)
		}
		mu.Lock()
		text := errors.Join(failures...).Error()
		var p *dispatcher.PanicError
		if !errors.As(errors.Join(failures...), &p) || !strings.Contains(string(p.Stack), "listener_test.go") {
			t.Errorf("got errors %s, want a *PanicError with a frame in listener_test.go", text)
		}
		mu.Unlock()
		for _, want := range []string{"the millstone broke", "no water", "Goexit"} {
			if !strings.Contains(text, want) {
				t.Errorf("got errors %q, want %q in them", text, want)
			}
		}
		b.mustFinish()
	})
	bubble(t, func(b *bundle) {
		const n = 32
		b.put(n)
		if isolated(naiveBatch(b), n) {
			t.Error("check of the source's query: got a pass, want a failure")
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
	// waitAfterError returns the wait between a first failed dequeue after work and the next one.
	waitAfterError := func(b *bundle, run func(b *bundle)) time.Duration {
		errorAt := time.Time{}
		b.queue.intercept = func(op string, act func() error) error {
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
	const idleMax = time.Minute

	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Idle = Idle{Max: idleMax}
		d := waitAfterError(b, func(b *bundle) {
			b.run(New(b.queue, func(context.Context, *Message[job]) error { time.Sleep(time.Second); return nil }, o))
			advance(10 * time.Minute)
			b.put(1)
			advance(10 * time.Minute)
			b.mustFinish()
		})
		if !short(d) {
			t.Errorf("wait after the error: got %v, want less than 2 s", d)
		}
	})
	bubble(t, func(b *bundle) {
		if short(waitAfterError(b, func(b *bundle) { naiveInterval(b, idleMax) })) {
			t.Error("check of the source's interval: got a pass, want a failure")
		}
	})
}

// naiveInterval is a loop that keeps its long interval after work.
func naiveInterval(b *bundle, idleMax time.Duration) {
	interval := time.Second
	for range 6 {
		batch, err := b.queue.Dequeue(b.Context(), 1, time.Minute)
		switch {
		case err != nil:
			time.Sleep(interval)
		case len(batch) == 0:
			interval = idleMax
			time.Sleep(interval)
			b.put(1)
		default:
			_ = b.queue.Delete(b.Context(), batch[0].Lease) // then dequeue again without a delay
		}
	}
}

// B-04, L-16, B-13, B-18: errors never end a loop, a busy service is polled less and less
// often, and the log is not flooded.
func TestALoopBacksOffFromABusyService(t *testing.T) {
	bubble(t, func(b *bundle) {
		var log strings.Builder
		o := options()
		o.Logger = textLogger(&log)
		var reported atomic.Int64
		o.OnError = func(err error) {
			if errors.Is(err, queue.ErrThrottled) {
				reported.Add(1)
			}
		}
		b.queue.intercept = func(op string, act func() error) error {
			if time.Since(b.begin) < 10*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy", RequestID: "r-1"}
			}
			return act()
		}
		b.put(1)
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		advance(10 * time.Minute)
		if polls := len(b.queue.sent("dequeue")); polls < 10 || polls > 60 || reported.Load() != int64(polls) {
			t.Errorf("got %d polls in ten minutes of 503 and %d errors reported; want between 10 and 60, each reported", polls, reported.Load())
		}
		advance(time.Minute)
		b.mustFinish()
		if l.State().Outcomes[Deleted] != 1 {
			t.Errorf("state after the outage: got %+v, want Succeeded 1", l.State())
		}
		if lines := strings.Count(log.String(), "\n"); lines == 0 || lines > 60 {
			t.Errorf("got %d log lines, want between 1 and 60", lines)
		}
		for _, want := range []string{"503", "ServerBusy", "r-1", "test/jobs"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("got log %s, want %q in it", log.String(), want)
			}
		}
	})
}

func TestADeniedListenerEndsWithAHint(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, _ func() error) error {
			denied := &queue.Error{Kind: queue.ErrUnauthorized, Status: 403, Code: "AuthenticationFailed"}
			return driver.Explain(denied, op, b.queue.Name(), "")
		}
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return nil }, options()))
		err := <-b.done
		if !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "check the key or the role") {
			t.Errorf("got error %v, want ErrUnauthorized and a hint", err)
		}
		b.stop()
	})
}

func TestAListenerThatHasWorkedWaitsOutADenial(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if d := time.Since(b.begin); d > time.Minute && d < 2*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		advance(90 * time.Second)
		b.put(1)
		advance(2 * time.Minute)
		b.mustFinish()
		if l.State().Outcomes[Deleted] != 1 {
			t.Errorf("got state %+v, want Succeeded 1", l.State())
		}
	})
}

func TestAMissingQueueIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		later := &recordingQueue{Queue: b.queue.Queue.Sibling("-later"), requestLog: b.queue.requestLog}
		l := New(later, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		advance(time.Minute)
		if err := later.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := later.Queue.Enqueue(t.Context(), `{"N":1}`, nil); err != nil {
			t.Fatal(err)
		}
		advance(2 * time.Second)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Errors == 0 {
			t.Errorf("got state %+v; want Succeeded 1, Errors above 0", st)
		}
	})
}

// L-03: invalid options are refused before anything is sent.
func TestBadOptionsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	for name, change := range map[string]func(*Options[job]){
		"concurrency":              func(o *Options[job]) { o.Concurrency = -1 },
		"Fetch.BatchSize":          func(o *Options[job]) { o.Fetch.BatchSize = 33 },
		"Fetch.Loops":              func(o *Options[job]) { o.Fetch.Loops = Loops{Min: -1} },
		"the minimum":              func(o *Options[job]) { o.Fetch.Loops = Loops{Min: 3, Max: 2} },
		"Fetch.Idle":               func(o *Options[job]) { o.Fetch.Idle = Idle{Min: 2 * time.Second, Max: time.Second} },
		"Lease.Visibility":         func(o *Options[job]) { o.Lease.Visibility = dispatcher.Visibility{Min: time.Second} },
		"Fetch.MinFetch":           func(o *Options[job]) { o.Fetch.MinFetch = -1 },
		"time-out":                 func(o *Options[job]) { o.Timeout = -1 },
		"poison":                   func(o *Options[job]) { o.Poison.MaxAttempts = -1 },
		"Lease.SettleTimeout":      func(o *Options[job]) { o.Lease.SettleTimeout = -1 },
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
				t.Errorf("%s: got error %v, want one that names the option and the queue", name, err)
			}
			if len(b.queue.log) > 0 {
				t.Errorf("%s: got %d requests, want 0", name, len(b.queue.log))
			}
		})
	}
	if err := New[job](nil, nil, nil).Run(t.Context()); err == nil {
		t.Error("Run without a queue: got no error, want one")
	}
	bubble(t, func(b *bundle) {
		if err := New[job](b.queue, nil, nil).Run(b.Context()); err == nil {
			t.Error("Run without a handler: got no error, want one")
		}
	})
}

func TestAListenerRunsOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, options())
		b.run(l)
		advance(time.Second)
		if err := l.Run(b.Context()); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("second Run: got error %v, want \"already\" in it", err)
		}
		b.mustFinish()
	})
}
