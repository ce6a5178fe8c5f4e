package listener

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// mortal sends a job with this TTL.
func (b *bundle) mortal(life time.Duration) {
	b.Helper()
	if _, err := b.queue.Queue.Enqueue(b.Context(), "millrace/1?id=7\n{\"N\":1}", &queue.EnqueueOptions{TTL: life}); err != nil {
		b.Fatal(err)
	}
}

// refused returns how many updates the service refused because they went beyond a message's
// expiry.
func (b *bundle) refused() (n int) {
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
		down     time.Duration
		latency  time.Duration
		poisoned int64
	}{
		"to the end":                   {2 * life, 0, 0},
		"for a while":                  {13 * time.Minute, 0, 1},
		"for a while, with slow calls": {13 * time.Minute, 3 * time.Second, 1},
	} {
		bubble(t, func(b *bundle) {
			b.mortal(life)
			b.queue.latency = c.latency
			b.queue.tamper = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < c.down {
					return &queue.Error{Op: op, Kind: queue.ErrUnavailable, Status: 500}
				}
				return act()
			}
			runs := 0
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return errors.New("no") }, options())
			b.run(l)
			after(life)
			b.finished()
			if st := l.State(); runs != poison.DefaultMaxAttempts || st.Poisoned != c.poisoned || int64(len(b.copies())) != c.poisoned {
				t.Errorf("%s: %d runs, state %+v, records %+v", name, runs, st, b.copies())
			}
			if n := b.refused(); c.latency == 0 && n > 0 {
				t.Errorf("%s: %d updates were refused", name, n)
			}
		})
	}
}

// No update asks for more than the message's remaining life: no give-back of a newer envelope,
// no snooze, no kept poison, no renewal, no slow save.
func TestNoUpdateAsksForMoreThanTheMessagesLife(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		old     time.Duration // when it is first delivered, and lost
		keep    bool
		handler Handler[job]
		latency time.Duration
		refused int // at most: until it is known how long calls take
	}{
		"newer":   {text: "millrace/2?\n", handler: nothing},
		"started": {old: 50 * time.Second, handler: nothing},
		"snoozed": {handler: func(context.Context, *Message[job]) error {
			return dispatcher.Snooze(time.Hour)
		}},
		"kept": {keep: true, handler: func(context.Context, *Message[job]) error {
			return dispatcher.Poison(errors.New("no"))
		}},
		"renewed": {latency: 3 * time.Second, refused: 1, handler: func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			return ctx.Err()
		}},
		"saved": {latency: 3 * time.Second, refused: 1, handler: func(ctx context.Context, m *Message[job]) error {
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
			if c.old > 0 {
				after(c.old)
				b.die()
			}
			b.queue.latency = c.latency
			o := fixed(30 * time.Second)
			o.Poison.Keep = c.keep
			b.run(New(b.queue, c.handler, o))
			after(2 * time.Minute)
			b.finished()
			updates := len(b.queue.sent("update"))
			if n := b.refused(); updates == 0 || n > c.refused {
				t.Errorf("%s: %d of %d updates were refused", name, n, updates)
			}
		})
	}
}

// An answer to a dequeue that took as long as the lease, less a second, comes too late: no
// handler starts.
func TestAnAnswerThatTookAsLongAsTheLeaseIsTooLate(t *testing.T) {
	for took, want := range map[time.Duration]int64{29*time.Second - time.Millisecond: 1, 29 * time.Second: 0} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.tamper = func(op string, act func() error) error {
				err := act()
				if op == "dequeue" {
					time.Sleep(took)
				}
				return err
			}
			var runs int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, fixed(30*time.Second))
			b.run(l)
			after(took + time.Millisecond)
			b.finished()
			if st := l.State(); runs != want || st.Lost != 1-want || st.Succeeded != want {
				t.Errorf("after %v: %d runs, state %+v", took, runs, st)
			}
		})
	}
}

// A message with less than a second to live, after a second of clock tolerance, is poison
// before it is handled.
func TestAMessageInItsLastSecondIsNotHandled(t *testing.T) {
	for took, want := range map[time.Duration]int64{0: 1, time.Millisecond: 0} {
		bubble(t, func(b *bundle) {
			b.mortal(10 * time.Second)
			after(8 * time.Second)
			b.queue.tamper = func(op string, act func() error) error {
				err := act()
				if op == "dequeue" {
					time.Sleep(took)
				}
				return err
			}
			var runs int64
			l := New(b.queue, func(context.Context, *Message[job]) error { runs++; return nil }, options())
			b.run(l)
			after(100 * time.Millisecond)
			b.finished()
			c := b.copies()
			if runs != want || int64(len(c)) != 1-want || len(c) == 1 && c[0].Reason != poison.ReasonExpiring {
				t.Errorf("%v after 8 s of 10 s: %d runs, records %+v", took, runs, c)
			}
		})
	}
}

// A message that is to be retried needs a second more than the visibility, or it is poison.
func TestAMessageWithNoTimeForAnotherAttemptIsPoison(t *testing.T) {
	for at, want := range map[time.Duration]int64{68 * time.Second: 1, 68*time.Second + time.Millisecond: 0} {
		bubble(t, func(b *bundle) {
			b.mortal(100 * time.Second)
			l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
				_ = sleep(ctx, at) // the next run, which begins at once, is cut off
				return dispatcher.Retry(0, errors.New("no"))
			}, fixed(30*time.Second))
			b.run(l)
			after(at + time.Millisecond)
			st := l.State()
			l.Halt()
			b.finished()
			if st.Retried != want || st.Poisoned != 1-want {
				t.Errorf("after %v of 100 s: state %+v", at, st)
			}
		})
	}
}

// Invariant 1: while the copy fails, whatever the error, the original is not deleted.
func TestAnOriginalIsNotDeletedWithoutItsCopy(t *testing.T) {
	for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrOutcomeUnknown, queue.ErrUnauthorized, queue.ErrQueueBeingDeleted, queue.ErrTooLarge} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.tamper = func(op string, act func() error) error {
				if op == "enqueue" && time.Since(b.begin) < time.Hour {
					return &queue.Error{Op: op, Kind: kind}
				}
				return act()
			}
			l := New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, options())
			b.run(l)
			after(time.Hour - time.Minute)
			if n := len(b.queue.sent("delete")); n > 0 || b.depth(b.queue.Queue) != 1 || l.State().Poisoned != 0 {
				t.Errorf("%v: %d deletes, %d left, state %+v", kind, n, b.depth(b.queue.Queue), l.State())
			}
			after(2 * time.Hour)
			b.finished()
			if st := l.State(); st.Poisoned != 1 || len(b.copies()) != 1 || b.depth(b.queue.Queue) != 0 {
				t.Errorf("%v: state %+v, records %+v", kind, st, b.copies())
			}
		})
	}
}
