package listener

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// sendWithTTL sends a job that expires.
func (b *bundle) sendWithTTL(ttl time.Duration) {
	b.Helper()
	if _, err := b.queue.Queue.Enqueue(b.Context(), "millrace/1?id=7\n{\"N\":1}", &queue.EnqueueOptions{TTL: ttl}); err != nil {
		b.Fatal(err)
	}
}

// refusedUpdates returns how many updates the service refused because they went beyond a
// message's expiry.
func (b *bundle) refusedUpdates() (n int) {
	for _, c := range b.queue.sent("update") {
		if errors.Is(c.err, queue.ErrInvalid) {
			n++
		}
	}
	return n
}

// A job without attempts left that cannot be moved is given back for no longer than it lives,
// so that the service accepts the record and no handler sees it again. While it lives it is
// delivered again to be moved.
func TestPoisonThatExpiresIsNotHandledAgain(t *testing.T) {
	const life = 15 * time.Minute
	for name, c := range map[string]struct {
		outage       time.Duration // of the poison queue
		latency      time.Duration
		wantPoisoned int64
	}{
		"to the end":                   {2 * life, 0, 0},
		"for a while":                  {13 * time.Minute, 0, 1},
		"for a while, with slow calls": {13 * time.Minute, 3 * time.Second, 1},
	} {
		bubble(t, func(b *bundle) {
			b.sendWithTTL(life)
			b.queue.latency = c.latency
			b.queue.intercept = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < c.outage {
					return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
				}
				return act()
			}
			runs := 0
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, options())
			b.run(l)
			advance(life)
			b.mustFinish()
			records := b.poisonRecords()
			if st := l.State(); runs != poisonrecord.DefaultMaxAttempts || st.Outcomes[Poisoned] != c.wantPoisoned || int64(len(records)) != c.wantPoisoned {
				t.Errorf("%s: got %d runs, state %+v, records %+v; want %d runs and %d poisoned",
					name, runs, st, records, poisonrecord.DefaultMaxAttempts, c.wantPoisoned)
			}
			if n := b.refusedUpdates(); c.latency == 0 && n > 0 {
				t.Errorf("%s: got %d refused updates, want 0", name, n)
			}
		})
	}
}

// No update asks for more than the message's remaining life: no give-back of a newer envelope,
// no snooze, no kept poison, no renewal, no slow save.
func TestNoUpdateAsksForMoreThanTheMessagesLife(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		lostAt     time.Duration // age at a lost first delivery; 0 for none
		keep       bool
		handler    Handler[job]
		latency    time.Duration
		maxRefused int // updates sent before the latency is known
	}{
		"newer":   {text: "millrace/2?\n", handler: nothing},
		"started": {lostAt: 50 * time.Second, handler: nothing},
		"snoozed": {handler: func(context.Context, *Message[job]) error {
			return dispatcher.Snooze(time.Hour)
		}},
		"kept": {keep: true, handler: func(context.Context, *Message[job]) error {
			return dispatcher.Poison(errors.New("no"))
		}},
		"renewed": {latency: 3 * time.Second, maxRefused: 1, handler: func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			return ctx.Err()
		}},
		"saved": {latency: 3 * time.Second, maxRefused: 1, handler: func(ctx context.Context, m *Message[job]) error {
			for n := 0; ctx.Err() == nil; n++ {
				_ = m.Save(ctx, job{n})
				time.Sleep(time.Second)
			}
			return ctx.Err()
		}},
	} {
		bubble(t, func(b *bundle) {
			if c.text == "" {
				c.text = "millrace/1?id=7\n{\"N\":1}"
			}
			if _, err := b.queue.Queue.Enqueue(t.Context(), c.text, &queue.EnqueueOptions{TTL: 75 * time.Second}); err != nil {
				t.Fatal(err)
			}
			if c.lostAt > 0 {
				advance(c.lostAt)
				b.loseDelivery()
			}
			b.queue.latency = c.latency
			o := fixed(30 * time.Second)
			o.Poison.Keep = c.keep
			b.run(New(b.queue, c.handler, o))
			advance(2 * time.Minute)
			b.mustFinish()
			updates := len(b.queue.sent("update"))
			if n := b.refusedUpdates(); updates == 0 || n > c.maxRefused {
				t.Errorf("%s: got %d of %d updates refused, want at most %d of at least 1", name, n, updates, c.maxRefused)
			}
		})
	}
}

// A response to a dequeue that took as long as the lease, less a second, comes too late: no
// handler starts.
func TestADequeueAsSlowAsItsLeaseIsTooLate(t *testing.T) {
	for took, want := range map[time.Duration]int64{29*time.Second - time.Millisecond: 1, 29 * time.Second: 0} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				err := act()
				if op == "dequeue" {
					time.Sleep(took)
				}
				return err
			}
			var runs int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, fixed(30*time.Second))
			b.run(l)
			advance(took + time.Millisecond)
			b.mustFinish()
			if st := l.State(); runs != want || st.Outcomes[Lost] != 1-want || st.Outcomes[Deleted] != want {
				t.Errorf("response after %v: got %d runs, state %+v; want runs %v, Lost %v, Succeeded %v", took, runs, st, want, 1-want, want)
			}
		})
	}
}

// A message with less than a second to live, after a second of clock tolerance, is poison
// before it is handled.
func TestAMessageInItsLastSecondIsNotHandled(t *testing.T) {
	for took, wantRuns := range map[time.Duration]int64{0: 1, time.Millisecond: 0} {
		bubble(t, func(b *bundle) {
			b.sendWithTTL(10 * time.Second)
			advance(8 * time.Second)
			b.queue.intercept = func(op string, act func() error) error {
				err := act()
				if op == "dequeue" {
					time.Sleep(took)
				}
				return err
			}
			var runs int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
			b.run(l)
			advance(100 * time.Millisecond)
			b.mustFinish()
			records := b.poisonRecords()
			if runs != wantRuns || int64(len(records)) != 1-wantRuns || len(records) == 1 && records[0].Reason != poison.ReasonExpiring {
				t.Errorf("%v after 8 s of 10 s: got %d runs, records %+v; want %d runs, otherwise a record with the reason expiring",
					took, runs, records, wantRuns)
			}
		})
	}
}

// A retry needs a second more than the visibility in remaining life; otherwise the message is poison.
func TestAMessageWithNoTimeForAnotherAttemptIsPoison(t *testing.T) {
	for at, want := range map[time.Duration]int64{68 * time.Second: 1, 68*time.Second + time.Millisecond: 0} {
		bubble(t, func(b *bundle) {
			b.sendWithTTL(100 * time.Second)
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				_ = sleep(ctx, at) // the next run, which begins at once, is cancelled
				return dispatcher.Retry(0, errors.New("no"))
			}, fixed(30*time.Second))
			b.run(l)
			advance(at + time.Millisecond)
			st := l.State()
			l.Halt()
			b.mustFinish()
			if st.Outcomes[Retried] != want || st.Outcomes[Poisoned] != 1-want {
				t.Errorf("after %v of 100 s: got state %+v; want Retried %v, Poisoned %v", at, st, want, 1-want)
			}
		})
	}
}

// Invariant 1: while the copy fails, whatever the error, the original is not deleted.
func TestAnOriginalIsNotDeletedWithoutItsCopy(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	for _, kind := range []error{
		queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown,
		queue.ErrUnauthorized, queue.ErrQueueBeingDeleted, queue.ErrTooLarge,
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < time.Hour {
					return &queue.Error{Op: op, Kind: kind}
				}
				return act()
			}
			l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, options())
			b.run(l)
			advance(time.Hour - time.Minute)
			if n := len(b.queue.sent("delete")); n > 0 || b.depth(b.queue.Queue) != 1 || l.State().Outcomes[Poisoned] != 0 {
				t.Errorf("%v: got %d deletes, %d left, state %+v; want deletes 0, depth 1, Poisoned 0", kind, n, b.depth(b.queue.Queue), l.State())
			}
			advance(2 * time.Hour)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Poisoned] != 1 || len(b.poisonRecords()) != 1 || b.depth(b.queue.Queue) != 0 {
				t.Errorf("%v: got state %+v, records %+v; want Poisoned 1, poison records 1, depth 0", kind, st, b.poisonRecords())
			}
		})
	}
}

// The log says that the listener listens when its phase is Running.
func TestTheFirstLineIsLoggedInThePhaseRunning(t *testing.T) {
	bubble(t, func(b *bundle) {
		var l *Listener[job]
		phases := map[string]Phase{}
		o := options()
		o.Logger = textLogger(writerFunc(func(line []byte) (int, error) {
			_, text, _ := strings.Cut(string(line), "msg=")
			what, _, _ := strings.Cut(text, " ")
			phases[what] = l.State().Phase
			return len(line), nil
		}))
		l = New(b.queue, nothing, o)
		b.run(l)
		advance(time.Second)
		b.mustFinish()
		if want := map[string]Phase{"listening": Running, "draining": Draining, "stopped": Stopped}; !maps.Equal(phases, want) {
			b.Errorf("got phases %v, want %v", phases, want)
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(line []byte) (int, error) { return f(line) }
