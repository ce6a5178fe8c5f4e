package listener

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// longIdle is so long that only the wake-up for a release ends a wait in time.
var longIdle = Idle{Min: 5 * time.Hour, Max: 24 * time.Hour}

// Poison that could not be moved is fetched when it becomes visible, not when the idle wait
// ends.
func TestPoisonThatCouldNotBeMovedIsFetchedWhenItIsVisible(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("not a job")
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" && time.Since(b.begin) < 30*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.Fetch.Idle = longIdle
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		b.run(New(b.queue, nothing, o))
		advance(time.Hour + 2*time.Second)
		if n := len(b.poisoned()); n != 1 {
			t.Errorf("got %d in the poison queue when the message was visible again, want 1", n)
		}
		b.mustFinish()
	})
}

// Poison whose delay is bounded by its remaining life is not fetched in a tight loop, with or
// without a retry delay.
func TestPoisonThatCannotBeMovedIsNotFetchedInALoop(t *testing.T) {
	for name, c := range map[string]struct {
		delay              func(int, error) time.Duration
		minPolls, maxPolls int
	}{
		"the usual delay": {nil, 8, 2000},
		"no delay":        {func(int, error) time.Duration { return 0 }, 8, 300},
	} {
		t.Run(name, func(t *testing.T) { checkPollsOfPoison(t, c.delay, c.minPolls, c.maxPolls) })
	}
}

func checkPollsOfPoison(t *testing.T, delay func(int, error) time.Duration, minPolls, maxPolls int) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(time.Hour)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.Fetch.Idle, o.RetryDelay = longIdle, delay
		b.run(New(b.queue, func(context.Context, *Message[job]) error {
			return dispatcher.Poison(errors.New("no"))
		}, o))
		advance(2 * time.Hour)
		if n := len(b.queue.sent("dequeue")); n < minPolls || n > maxPolls {
			t.Errorf("got %d polls in the life of one message, want %d to %d", n, minPolls, maxPolls)
		}
		b.mustFinish()
	})
}

// A message that is given back because its lease was uncertain is fetched at once.
func TestAMessageGivenBackAfterALateRenewalIsFetchedAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			err := act()
			if op == "update" && time.Since(b.begin) < 25*time.Second {
				time.Sleep(14 * time.Second)
			}
			return err
		}
		o := fixed(30 * time.Second)
		o.Fetch.Idle = longIdle
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
		advance(time.Hour)
		if st := l.State(); len(begun) != 2 || begun[1] > time.Minute || st.Outcomes[Returned] != 1 {
			t.Errorf("starts of handlers: got %v, state %+v; want two, the second within %v, Returned 1", begun, st, time.Minute)
		}
		b.mustFinish()
	})
}

// Messages that a queue returned beyond the requested number are fetched at once, even if the
// give-back takes longer than the next poll.
func TestTheSurplusOfAnOverfullBatchIsFetchedAtOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		for i := range 6 {
			b.send(i)
		}
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				time.Sleep(3 * time.Second)
			}
			return act()
		}
		o := options()
		o.Concurrency, o.Fetch.BatchSize, o.Fetch.Idle = 4, 4, longIdle
		o.OnError = func(error) {} // another test checks the errors
		l := New(overfillingQueue{b.queue, 32}, nothing, o)
		b.run(l)
		advance(time.Minute)
		if st := l.State(); st.Outcomes[Deleted] != 6 {
			t.Errorf("got %d of 6 done in a minute; want Succeeded 6", st.Outcomes[Deleted])
		}
		b.mustFinish()
	})
}

// A give-back at the stop wakes no loop: no further dequeue is sent.
func TestAGiveBackAtTheStopCausesNoPoll(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		o.Grace = time.Second
		o.Fetch.Idle = longIdle
		b.run(New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			return errors.Join(ctx.Err(), errors.New("interrupted"))
		}, o))
		advance(time.Minute)
		before := len(b.queue.sent("dequeue"))
		b.mustFinish()
		if n := len(b.queue.sent("dequeue")) - before; n != 0 {
			t.Errorf("got %d dequeues after the stop; want 0", n)
		}
	})
}

// A message of a newer version is given back for other workers: the worker that cannot read it does
// not poll when it becomes visible, or it would always take it before they do.
func TestAMessageForANewerWorkerWakesNobody(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.putText("millrace/9?id=7\n{}")
		o := options()
		o.Fetch.Idle = longIdle
		b.run(New(b.queue, nothing, o))
		advance(4 * time.Hour)
		if got := len(b.queue.sent("dequeue")); got > 2 {
			t.Errorf("dequeues in 4 hours: got %d, want 2 at most", got)
		}
		b.mustFinish()
	})
}
