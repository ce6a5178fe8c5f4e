package listener

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// asleep returns idle waits so long that only the wake-up for a release ends them in time.
var asleep = scaling.Idle{Min: 5 * time.Hour, Max: 24 * time.Hour}

// Poison that could not be moved is fetched when it becomes visible, not when the idle wait
// ends.
func TestPoisonThatCouldNotBeMovedIsFetchedWhenItFallsDue(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("not a job")
		b.queue.tamper = func(op string, act func() error) error {
			if op == "enqueue" && time.Since(b.begin) < 30*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.Idle = asleep
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		b.run(New(b.queue, nothing, o))
		after(time.Hour + 2*time.Second)
		if n := len(b.poisoned()); n != 1 {
			t.Errorf("%d in the poison queue when the message was due again", n)
		}
		b.finished()
	})
}

// The same where its remaining life bounds the delay. It is not fetched in a tight loop,
// neither with few attempts nor without a delay.
func TestPoisonThatCannotBeMovedIsNotFetchedInALoop(t *testing.T) {
	for name, c := range map[string]struct {
		delay       func(int, error) time.Duration
		least, most int
	}{
		"the usual delay": {nil, 8, 2000},
		"no delay":        {func(int, error) time.Duration { return 0 }, 1000, 12000},
	} {
		t.Run(name, func(t *testing.T) { fetchedInALoop(t, c.delay, c.least, c.most) })
	}
}

func fetchedInALoop(t *testing.T, delay func(int, error) time.Duration, minPolls, maxPolls int) {
	bubble(t, func(b *bundle) {
		b.mortal(time.Hour)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "enqueue" {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.Idle, o.RetryDelay = asleep, delay
		b.run(New(b.queue, func(context.Context, *Message[job]) error {
			return dispatcher.Poison(errors.New("no"))
		}, o))
		after(2 * time.Hour)
		if n := len(b.queue.sent("dequeue")); n < minPolls || n > maxPolls {
			t.Errorf("%d polls in the life of one message, want %d to %d", n, minPolls, maxPolls)
		}
		b.finished()
	})
}

// A message that is given back because its lease was uncertain is fetched at once.
func TestWhatALateRenewalInterruptedIsFetchedAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.tamper = func(op string, act func() error) error {
			err := act()
			if op == "update" && time.Since(b.begin) < 25*time.Second {
				time.Sleep(14 * time.Second)
			}
			return err
		}
		o := fixed(30 * time.Second)
		o.Idle = asleep
		var begun []time.Duration
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			begun = append(begun, time.Since(b.begin))
			if len(begun) > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, o)
		b.run(l)
		after(time.Hour)
		if st := l.State(); len(begun) != 2 || begun[1] > time.Minute || st.GivenBack != 1 {
			t.Errorf("handlers began at %v, state %+v", begun, st)
		}
		b.finished()
	})
}

// So is what a queue returned beyond the requested number, even if the give-back takes longer
// than the next poll.
func TestTheSurplusOfAnOverfullBatchIsFetchedAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 6 {
			b.send(i)
		}
		b.queue.tamper = func(op string, act func() error) error {
			if op == "update" {
				time.Sleep(3 * time.Second)
			}
			return act()
		}
		o := options()
		o.Concurrency, o.BatchSize, o.Idle = 4, 4, asleep
		o.OnError = func(error) {} // which another test looks at
		l := New(generous{b.queue, 32}, nothing, o)
		b.run(l)
		after(time.Minute)
		if st := l.State(); st.Succeeded != 6 {
			t.Errorf("%d of 6 done in a minute", st.Succeeded)
		}
		b.finished()
	})
}

// A give-back at the stop wakes no loop: no further dequeue is sent.
func TestAGiveBackAtTheStopWakesNobody(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		o.Grace = time.Second
		o.Idle = asleep
		b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			return errors.Join(ctx.Err(), errors.New("interrupted"))
		}, o))
		after(time.Minute)
		before := len(b.queue.sent("dequeue"))
		b.finished()
		if n := len(b.queue.sent("dequeue")) - before; n != 0 {
			t.Errorf("%d dequeues after the stop", n)
		}
	})
}
