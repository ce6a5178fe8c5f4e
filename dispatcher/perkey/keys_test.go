package perkey_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
)

// One handler at a time runs for each key, those of other keys run meanwhile, and everything is handled.
func TestOneHandlerAtATimeRunsForEachKey(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		want := map[string]int{}
		for i := range 300 {
			key := fmt.Sprint("key ", i%7)
			b.send(key, i, time.Duration(50+i%100)*time.Millisecond)
			want[key]++
		}
		l, stop := b.start(b.limited(b.handle))
		b.until(300, 5*time.Minute)
		stop()
		b.wantEach(want)
		b.wantFree()
		b.wantEmpty(l)
		if b.atOnce != 7 {
			t.Errorf("handlers at once: got %d, want 7, one for each key", b.atOnce)
		}
	})
}

// Jobs without a key are not limited, and share nothing with each other.
func TestJobsWithoutAKeyAreNotLimited(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.flood("", 40, time.Minute)
		l, stop := b.start(b.limited(b.handle))
		advance(90 * time.Second)
		stop()
		if b.atOnce != 40 || b.count("") != 40 {
			t.Errorf("got %d at once and %d done, want 40 and 40", b.atOnce, b.count(""))
		}
		b.wantEmpty(l)
	})
}

// Of the jobs that wait in the process the first to come is the next to run.
func TestWaitersOfAKeyTakeTurnsInTheirOrder(t *testing.T) {
	bubble(t, &perkey.Options{Wait: time.Hour}, func(b *bundle) {
		_, stop := b.start(b.limited(b.handle))
		for i := range 17 { // as many as may wait, and the one that runs
			b.send("a", i, time.Minute)
			advance(2 * time.Second) // so that each has a dequeue of its own
		}
		if s := b.keys.State(); s.NotRun != 0 || s.Waiting != 16 {
			t.Errorf("got %+v, want 16 waiting and none postponed", s)
		}
		b.until(17, 20*time.Minute)
		stop()
		if !slices.IsSortedFunc(b.done, func(x, y finished) int { return x.n - y.n }) {
			t.Errorf("got the order %v, want that in which they came", b.done)
		}
	})
}

// A flood of one key leaves slots to others: these are handled at once, whatever waits.
func TestAFloodOfOneKeyDoesNotHoldUpOthers(t *testing.T) {
	for _, takes := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Minute} {
		for _, concurrency := range []int{2, 3, 8, 64} {
			bubble(t, nil, func(b *bundle) {
				b.options.Concurrency = concurrency
				b.flood("busy", 200, takes)
				l, stop := b.start(b.limited(b.handle))
				for i := range 50 {
					b.send(fmt.Sprint("other ", i), i, 0)
					advance(time.Second)
					if s := b.keys.State(); s.Waiting > concurrency/4 {
						t.Errorf("with %d slots: got %+v, want at most a quarter of the slots taken by jobs that wait", concurrency, s)
					}
				}
				stop()
				b.mu.Lock()
				defer b.mu.Unlock()
				others := 0
				for _, f := range b.done {
					if f.key == "busy" {
						continue
					}
					others++
					if late := f.began - time.Duration(f.n)*time.Second; late > 2*time.Second {
						t.Errorf("%v, %d slots: job %d of another key began %v after it was sent", takes, concurrency, f.n, late)
					}
				}
				if others != 50 || l.State().Outcomes[listener.Poisoned] != 0 {
					t.Errorf("%v, %d slots: got %d of 50 jobs of other keys done, %+v", takes, concurrency, others, l.State())
				}
			})
		}
	}
}

// Many keys in flood leave half of the slots to handlers.
func TestFloodsOfManyKeysLeaveHalfOfTheSlots(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.options.Concurrency = 16
		for key := range 40 {
			b.flood(fmt.Sprint("key ", key), 20, time.Second)
		}
		l, stop := b.start(b.limited(b.handle))
		for b.count("") < 40*20 {
			advance(100 * time.Millisecond)
			if s := b.keys.State(); s.Waiting > 8 || time.Since(b.begin) > 30*time.Minute {
				t.Fatalf("after %v and %d done: got %+v, want at most 8 waiting", time.Since(b.begin), b.count(""), s)
			}
		}
		stop()
		b.wantFree()
		b.wantEmpty(l)
		if b.atOnce < 12 {
			t.Errorf("got %d handlers at once, want most of 16", b.atOnce)
		}
	})
}

// A job that is postponed again and again has no attempt more.
func TestPostponedJobsLoseNoAttempts(t *testing.T) {
	bubble(t, &perkey.Options{Wait: -1, MaxDelay: time.Second}, func(b *bundle) {
		b.options.Poison.MaxAttempts, b.options.Poison.MaxLost = 1, 1
		b.flood("a", 20, 7*time.Second)
		l, stop := b.start(b.limited(b.handle))
		b.until(20, time.Hour)
		stop()
		b.wantEach(map[string]int{"a": 20})
		b.wantEmpty(l)
		if s := b.keys.State(); s.NotRun < 100 {
			t.Errorf("got %+v, want more than 100 postponed, or the test shows nothing", s)
		}
	})
}

// Messages that record no attempts are never given back: that would be one, and with a few of them they
// would be poison.
func TestMessagesWithoutAnEnvelopeWait(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.options.Concurrency = 4
		for i := range 12 {
			if _, err := b.queue.Enqueue(b.Context(), fmt.Sprintf(`{"N":%d,"Takes":%d}`, i, 20*time.Second), nil); err != nil {
				t.Fatal(err)
			}
		}
		one := perkey.MiddlewareBy(b.keys, func(*listener.Message[job]) string { return "all" })
		l, stop := b.start(listener.Chain(b.handle, one))
		b.until(12, 5*time.Minute)
		stop()
		b.wantEmpty(l)
		if st := l.State(); st.ByCause["giveback"] != 0 || b.keys.State().NotRun != 0 || b.atOnce != 1 {
			t.Errorf("got %d given back, %+v, %d at once; want none, and 1", st.ByCause["giveback"], b.keys.State(), b.atOnce)
		}
	})
}

// The key is released whatever becomes of the handler.
func TestAKeyIsReleasedHoweverItsHandlerEnds(t *testing.T) {
	for name, end := range map[string]func(context.Context) error{
		"error":   func(context.Context) error { return errors.New("no") },
		"snooze":  func(context.Context) error { return listener.Snooze(time.Second) },
		"panic":   func(context.Context) error { panic("no") },
		"goexit":  func(context.Context) error { runtime.Goexit(); return nil },
		"timeout": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		bubble(t, nil, func(b *bundle) {
			b.options.Timeout = 10 * time.Second
			b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
			b.send("a", 0, 0)
			l, stop := b.start(b.limited(func(ctx context.Context, m *listener.Message[job]) error {
				if m.DequeueCount == 1 {
					b.enter("a")
					defer b.leave("a")
					return end(ctx)
				}
				return b.handle(ctx, m)
			}))
			advance(time.Second / 2)
			b.send("a", 1, 0)
			b.until(2, time.Minute)
			stop()
			if b.wantFree(); l.State().Outcomes[listener.Deleted] != 2 {
				t.Errorf("%s: got %+v, want 2 succeeded", name, l.State())
			}
		})
	}
}

// A panic of the function that returns the key is a failed attempt, and holds nothing.
func TestAKeyFunctionThatPanicsFailsItsJobOnly(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
		b.flood("a", 3, 0)
		l, stop := b.start(listener.Chain(b.handle, perkey.MiddlewareBy(b.keys, func(m *listener.Message[job]) string {
			if m.Attempt == 1 && m.Body.N == 1 {
				panic("no key")
			}
			return m.Key
		})))
		b.until(3, time.Minute)
		stop()
		if b.wantFree(); l.State().Outcomes[listener.Deleted] != 3 || l.State().Outcomes[listener.Retried] != 1 {
			t.Errorf("got %+v, want 3 succeeded and 1 retried", l.State())
		}
	})
}

// A handler that goes on without its lease, and was even given up as stuck, holds its key until it
// returns. Its job, which is delivered again, waits for it like any other.
func TestAHandlerWithoutItsLeaseHoldsItsKey(t *testing.T) {
	bubble(t, nil, func(b *bundle) {
		b.options.Lease.Visibility = listener.FixedVisibility(10 * time.Second)
		b.options.Timeout, b.options.Lease.StuckAfter, b.options.Lease.GiveUp = 20*time.Second, 10*time.Second, true
		stuck := 0
		b.options.OnError = func(err error) {
			if e := (*listener.StuckError)(nil); errors.As(err, &e) {
				stuck++
			}
		}
		b.send("a", 0, 0)
		first := true
		l, stop := b.start(b.limited(func(ctx context.Context, m *listener.Message[job]) error {
			if first {
				first = false
				b.enter("a")
				defer b.leave("a")
				time.Sleep(10 * time.Minute) // and does not look at its context
				return nil
			}
			return b.handle(ctx, m)
		}))
		advance(5 * time.Minute)
		if s := b.keys.State(); stuck != 1 || s.Held != 1 || s.Longest < 4*time.Minute || s.NotRun == 0 {
			t.Errorf("got %d stuck, %+v; want 1, its key held for 5 min, and its next delivery postponed", stuck, s)
		}
		b.until(1, 20*time.Minute)
		stop()
		b.wantFree()
		if st := l.State(); st.Outcomes[listener.Poisoned] != 0 {
			t.Errorf("got %+v, want nothing poisoned", st)
		}
	})
}

// A job waits for a tenth of its time-out at most, so that the handler has nine tenths at least.
func TestAJobWaitsForATenthOfItsTimeout(t *testing.T) {
	bubble(t, &perkey.Options{Wait: time.Hour}, func(b *bundle) {
		b.options.Timeout = time.Minute
		b.flood("a", 20, 25*time.Second)
		least := time.Hour
		l, stop := b.start(b.limited(func(ctx context.Context, m *listener.Message[job]) error {
			deadline, ok := ctx.Deadline()
			if least = min(least, time.Until(deadline)); !ok {
				t.Error("got no deadline, want that of the time-out")
			}
			return b.handle(ctx, m)
		}))
		b.until(20, time.Hour)
		stop()
		b.wantEmpty(l)
		if least < 54*time.Second || least == time.Minute {
			t.Errorf("got %v left of a minute, want at least nine tenths, and less than all of it once", least)
		}
	})
}

// When the worker stops, jobs that wait run within the grace period; when it ends they are given
// back without an attempt.
func TestAJobThatWaitsAtTheStopIsGivenBack(t *testing.T) {
	bubble(t, &perkey.Options{Wait: time.Hour}, func(b *bundle) {
		b.options.Grace = 3 * time.Second
		b.flood("a", 2, time.Hour)
		l, stop := b.start(b.limited(func(ctx context.Context, m *listener.Message[job]) error {
			b.enter("a")
			defer b.leave("a")
			<-ctx.Done()
			time.Sleep(time.Second) // the job that waits must not begin when this one returns
			return ctx.Err()
		}))
		advance(time.Second)
		if s := b.keys.State(); s.Waiting != 1 {
			t.Fatalf("got %+v, want 1 waiting", s)
		}
		stop()
		b.wantFree()
		if st := l.State(); st.Outcomes[listener.Returned] != 2 || st.Outcomes[listener.Retried] != 0 || st.Outcomes[listener.Snoozed] != 0 {
			t.Errorf("got %+v, want 2 given back", st)
		}
		if batch, err := b.queue.Peek(b.Context(), 2); err != nil || len(batch) != 2 || strings.Contains(batch[0].Text, "n=1") {
			t.Errorf("got %v, %v; want both visible without an attempt", batch, err)
		}
	})
}

// The turn of a job whose context has ended at the same instant goes to the next one.
func TestATurnIsNotLostWithItsJob(t *testing.T) {
	bubble(t, &perkey.Options{Wait: time.Hour}, func(b *bundle) {
		release := make(chan struct{})
		ran := 0
		h := b.limited(func(context.Context, *listener.Message[job]) error { ran++; <-release; return nil })
		m := &listener.Message[job]{} // which waits without a bound, because it cannot be given back
		m.Key = "a"
		var all sync.WaitGroup
		all.Go(func() { _ = h(b.Context(), m) })
		synctest.Wait()
		ctx, cancel := context.WithCancel(b.Context())
		var err error
		all.Go(func() { err = h(ctx, m) })
		synctest.Wait()
		all.Go(func() { _ = h(b.Context(), m) })
		synctest.Wait()
		cancel()
		close(release) // the second job may see either first
		all.Wait()
		if b.wantFree(); ran != 2 && err == nil || ran == 2 && !errors.Is(err, perkey.ErrBusy) {
			t.Errorf("got %d handlers and %v", ran, err)
		}
	})
}

// arrival is a job that comes at some time, takes a while, and whose context ends when it has been patient.
type arrival struct {
	Key, Takes, Patient, At int // times as indexes of moments
}

// moments meet each other, and the wait of the options.
var moments = []time.Duration{0, time.Millisecond, time.Second, 5 * time.Second, 10 * time.Second, time.Minute}

// In any order of coming, going and giving up no two jobs hold a key at once, all that are patient run,
// and in the end nothing is held.
func TestAnyOrderOfJobsKeepsTheKeys(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		moment := rapid.IntRange(0, len(moments)-1)
		all := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) arrival {
			return arrival{rapid.IntRange(0, 2).Draw(r, "key"), moment.Draw(r, "takes"), moment.Draw(r, "patient"), moment.Draw(r, "at")}
		}), 1, 30).Draw(r, "jobs")
		var faults []string
		synctest.Test(t, func(t *testing.T) { faults = setup(t, nil).play(all) })
		if len(faults) > 0 {
			r.Fatal(strings.Join(faults, "\n"))
		}
	})
}

// play calls handlers directly, each with a message that cannot be given back.
func (b *bundle) play(all []arrival) []string {
	h := b.limited(b.handle)
	var running sync.WaitGroup
	for i, one := range all {
		running.Go(func() {
			time.Sleep(moments[one.At])
			patient := moments[one.Patient]
			if patient == time.Minute {
				patient = time.Hour
			}
			ctx, cancel := context.WithTimeout(b.Context(), patient)
			defer cancel()
			m := &listener.Message[job]{Body: job{i, moments[one.Takes]}}
			m.Key = fmt.Sprint(one.Key)
			if err := h(ctx, m); err != nil && patient == time.Hour {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.faults = append(b.faults, fmt.Sprintf("job %d: %v", i, err))
			}
		})
	}
	running.Wait()
	if s := b.keys.State(); s.Held+s.Waiting > 0 {
		b.faults = append(b.faults, fmt.Sprintf("in the end: %+v", s))
	}
	return b.faults
}

func TestBadOptionsAreRefused(t *testing.T) {
	for _, o := range []perkey.Options{{Wait: 5}, {MaxDelay: time.Millisecond}, {MaxDelay: -1}, {MaxDelay: 8 * 24 * time.Hour}} {
		if k, err := perkey.New(&o); err == nil || k != nil || !strings.Contains(err.Error(), "perkey: ") {
			t.Errorf("%+v: got %v, want an error", o, err)
		}
	}
	if _, err := perkey.New(&perkey.Options{Wait: 5, MaxDelay: 5}); err == nil || !strings.Contains(err.Error(), "Wait 5ns") || !strings.Contains(err.Error(), "MaxDelay 5ns") {
		t.Errorf("got %v, want both options named", err)
	}
}
