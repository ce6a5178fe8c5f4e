package listener

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/faultqueue"
)

var errBusy = errors.New("its key is busy")

// A postponed job comes back after the delay, is no attempt, and is not reported. It is one update.
func TestAPostponedJobComesBackWithoutAnAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var at []time.Duration
		o := options()
		o.OnError = func(err error) { t.Errorf("reported: %v", err) }
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			if at = append(at, time.Since(b.begin)); m.Attempt != 1 {
				t.Errorf("delivery %d: got attempt %d, want 1", m.DequeueCount, m.Attempt)
			}
			if len(at) <= 2*poisonrecord.DefaultMaxAttempts {
				return NotRun(time.Minute, errBusy)
			}
			return nil
		}, o)
		b.run(l)
		advance(time.Hour)
		b.mustFinish()
		for i := 1; i < len(at); i++ {
			if d := at[i] - at[i-1]; d < time.Minute || d > 62*time.Second {
				t.Errorf("delivery %d came after %v, want about a minute", i+1, d)
			}
		}
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Snoozed] != 2*poisonrecord.DefaultMaxAttempts {
			t.Errorf("got %+v, want 1 succeeded and %d snoozed", st, 2*poisonrecord.DefaultMaxAttempts)
		}
		b.wantRequests("update", 2*poisonrecord.DefaultMaxAttempts)
	})
}

// Invariant 5: a job that kills its worker is poison after as many runs when it is postponed in between:
// that is no sign that its handler survives.
func TestAPostponedJobThatKillsItsWorkerIsPoison(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs, deliveries := 0, 0
		for seed := uint64(0); runs < 20; seed++ {
			started := make(chan struct{})
			l, q := b.newProcess(&faultqueue.Options{Seed: seed}, func(ctx context.Context, _ *Message[job]) error {
				if deliveries++; deliveries%3 != 0 {
					return NotRun(time.Second, errBusy)
				}
				close(started)
				<-ctx.Done()
				return nil
			}, options())
			b.run(l)
			quiet := false
			select {
			case <-started:
				runs++
				q.Kill()
			case <-time.After(3 * time.Hour):
				quiet = true
			}
			l.Halt()
			b.mustFinish()
			if q.Wait(); quiet {
				break
			}
		}
		c := b.poisonRecords()
		if runs != 1+poisonrecord.DefaultMaxLost || len(c) != 1 || c[0].Reason != poison.ReasonLost {
			t.Errorf("got %d runs, records %+v; want %d runs and one record with the reason lost", runs, c, 1+poisonrecord.DefaultMaxLost)
		}
	})
}

// A postponed job says nothing about the handlers: it neither prevents nor ends an outage. A snooze
// does both.
func TestPostponedJobsDoNotHideAnOutage(t *testing.T) {
	for name, c := range map[string]struct {
		result     error
		wantOutage bool
	}{
		"postponed": {NotRun(time.Hour, errBusy), true},
		"wrapped":   {errors.Join(NotRun(time.Hour, errBusy)), true},
		"snoozed":   {Snooze(time.Hour), false},
	} {
		for _, group := range []bool{false, true} {
			bubble(t, func(b *bundle) {
				for range 100 {
					if group {
						b.putGroup(2)
					} else {
						b.put(1)
					}
				}
				o := options()
				o.Concurrency = 1
				o.RetryDelay = func(int, error) time.Duration { return time.Hour }
				n := 0
				l := New(b.queue, func(_ context.Context, m *Message[job]) error {
					if m.Item == 0 {
						n++
					}
					if n%4 == 0 { // now and then
						return c.result
					}
					return errors.New("the database is down")
				}, o)
				b.run(l)
				advance(2 * time.Minute)
				outage := slices.ContainsFunc(l.State().Failing, func(s FailingSource) bool { return s.Source == "all jobs" })
				b.mustFinish()
				if outage != c.wantOutage {
					t.Errorf("%s, groups %v: got an outage %v with %+v, want %v", name, group, outage, l.State(), c.wantOutage)
				}
			})
		}
	}
}

// A postponed probe ends no outage, and the next one follows at once.
func TestAPostponedProbeIsFollowedByAnother(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(200)
		o := options()
		o.Concurrency = 1
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		calls, postponed := 0, 0
		l := New(b.queue, func(context.Context, *Message[job]) error {
			if time.Since(b.begin) > time.Minute && postponed < 10 {
				postponed++
				return NotRun(time.Hour, errBusy)
			}
			calls++
			return errors.New("the database is down")
		}, o)
		b.run(l)
		advance(time.Minute) // all have failed
		b.put(50)
		advance(11*time.Second + 900*time.Millisecond) // polls of the empty queue, and then the first pause
		st := l.State()
		b.mustFinish()
		if st.Outcomes[Snoozed] != 10 || calls < 201 || calls > 205 {
			t.Errorf("got %d postponed and %d failed; want 10, and 200 and those of the rounds after", st.Outcomes[Snoozed], calls)
		}
	})
}

// Deliveries that were postponed at once are no handling times, by which the visibility would sink to
// less than handlers need.
func TestPostponedJobsDoNotShortenTheVisibility(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(400)
		n := 0
		o := options()
		o.Concurrency = 1
		o.Lease.Visibility = dispatcher.Visibility{First: time.Minute}
		l := New(b.queue, func(context.Context, *Message[job]) error {
			n++
			if n%40 == 0 { // fewer than the one in twenty that counts
				time.Sleep(40 * time.Second)
				return nil
			}
			return NotRun(time.Hour, errBusy)
		}, o)
		b.run(l)
		advance(15 * time.Minute)
		b.mustFinish()
		if st := l.State(); n != 400 || st.Visibility < time.Minute {
			t.Errorf("after %d deliveries: got a visibility of %v, want at least a minute", n, st.Visibility)
		}
	})
}

// A job whose life ends before it could come again is poison with the reason for which it waited, and
// no attempt is counted.
func TestAPostponedJobThatExpiresSaysWhatItWaitedFor(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(5 * time.Minute)
		l := New(b.queue, func(context.Context, *Message[job]) error { return NotRun(time.Hour, errBusy) }, options())
		b.run(l)
		advance(6 * time.Minute)
		b.mustFinish()
		c := b.poisonRecords()
		if len(c) != 1 || c[0].Reason != poison.ReasonExpiring || !strings.Contains(c[0].Error, errBusy.Error()) || c[0].Attempts != 0 {
			t.Errorf("got records %+v, want one that is expiring because its key is busy, without an attempt", c)
		}
	})
}

// Middleware is told how many handlers may run, also when that changes, and whether a give-back is an
// attempt.
func TestMiddlewareIsToldWhatAMessageMayDo(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Concurrency = 7
		var concurrency []int
		recorded := map[int]bool{}
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			concurrency = append(concurrency, m.Concurrency())
			recorded[m.Body.N] = m.AttemptsRecorded()
			return nil
		}, o)
		b.run(l)
		b.send(1)
		advance(2 * time.Second)
		if err := l.Configure(Settings{Concurrency: 9}); err != nil {
			t.Fatal(err)
		}
		b.putText(`{"N":2}`)
		advance(2 * time.Second)
		b.mustFinish()
		if len(concurrency) != 2 || concurrency[0] != 7 || concurrency[1] != 9 || !recorded[1] || recorded[2] {
			t.Errorf("got concurrency %v, attempts recorded %v; want 7 and 9, and only of the first, which has an envelope", concurrency, recorded)
		}
		var made Message[job]
		if made.Concurrency() != 0 || made.AttemptsRecorded() {
			t.Errorf("a message made by a test: got %d and %v, want 0 and false", made.Concurrency(), made.AttemptsRecorded())
		}
	})
	bubble(t, func(b *bundle) {
		b.putText(`{"N":2}`)
		o := options()
		o.Wire.AcceptForeign = true
		adopted := false
		b.run(New(b.queue, func(_ context.Context, m *Message[job]) error { adopted = m.AttemptsRecorded(); return nil }, o))
		advance(time.Second)
		b.mustFinish()
		if !adopted {
			t.Error("with AcceptForeign: got a message whose attempts are not recorded")
		}
	})
}
