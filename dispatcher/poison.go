package dispatcher

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// poison copies the message to the poison queue and then deletes it. If the copy fails the
// message is given back, so that it is not lost, with the delay that dec then has.
func (v *delivery) poison(dec *decision) error {
	if err := v.copy(v.record(*dec), *dec); err != nil {
		delay := v.moveDelay(dec.err)
		back := v.giveBack(queue.CausePoison, delay, v.poisonText(*dec))
		if back == nil {
			dec.delay = delay
		}
		return errors.Join(copyError{err}, back)
	}
	if err := v.remove(queue.CausePoison); !errors.Is(err, queue.ErrMessageGone) {
		return err
	}
	return nil // it expired meanwhile: only the copy is left
}

// record returns what the poison queue keeps of the message.
func (v *delivery) record(dec decision) poison.Record {
	m := v.queued
	m.Text = v.poisonedText()
	r := poison.NewRecord(v.dispatcher.name, m, v.failures(), dec.reason, dec.err)
	r.LastSeen = v.lease.asked.UTC()
	if v.enveloped() && !v.marked { // without an envelope nothing is recorded of any delivery
		r.Lost = v.lostDeliveries()
	}
	r.Stack = poison.Stack(stackOf(dec.err))
	return r
}

// copy writes the record to the poison queue, with as many tries as SettleTimeout allows. The
// lease is no longer renewed, and a message that is delivered again before it is given back
// would be handled again. So when half of the remaining lease has passed, the message first
// gets a longer lease, with a text that marks it as poison.
func (v *delivery) copy(record poison.Record, dec decision) error {
	d := v.dispatcher
	left := max(v.leaseLeft()/2, time.Second)
	over, err := v.copyWithin(min(left, d.options.SettleTimeout), record)
	if err == nil || !over || left >= d.options.SettleTimeout {
		return err
	}
	longer := v.withinLife(wholeSeconds(2*d.options.SettleTimeout + safetyMargin))
	fresh, renewed := d.queue.Update(d.requests.because(queue.CausePoison), v.queued.Lease, v.poisonText(dec), longer)
	if renewed != nil {
		return errors.Join(err, renewed)
	}
	v.queued.Receipt, v.queued.Until = fresh.Receipt, fresh.Until
	_, err = v.copyWithin(d.options.SettleTimeout, record)
	return err
}

// copyWithin tries for up to the limit, and reports whether it was reached.
func (v *delivery) copyWithin(limit time.Duration, record poison.Record) (over bool, err error) {
	ctx, cancel := context.WithTimeout(v.dispatcher.requests.because(queue.CausePoison), limit)
	defer cancel()
	err = v.dispatcher.options.Poison.Copy(ctx, record)
	return ctx.Err() != nil, err
}

// leaseLeft returns how much is left of a lease that is no longer tracked.
func (v *delivery) leaseLeft() time.Duration {
	if !v.tracked() {
		return time.Until(v.lease.asked.Add(v.visibility - safetyMargin))
	}
	return time.Until(v.lease.expiry)
}

// poisonText returns the text that marks the message as poison, so that no handler sees it
// again while it stays in its queue.
func (v *delivery) poisonText(dec decision) string {
	v.head.Poison = string(dec.reason)
	failed := v.attempt() - 1
	switch dec.reason {
	case poison.ReasonAttempts, poison.ReasonExpiring: // a rejection is not a failure, nor is a snooze
		if v.started() && dec.err != nil {
			failed++
		}
	}
	return v.recordedText(failed)
}

// copyError hides its error from errors.Is, so that a missing poison queue is not taken for a
// missing queue.
type copyError struct{ err error }

func (e copyError) Error() string { return e.err.Error() }

// Poison that is not moved is hidden in its queue for twice as long each time it comes up. A move
// that failed is soon tried again. Where nothing may be moved, coming up only shows that the
// message is still there.
const (
	firstMoveWait = time.Second
	maxMoveWait   = time.Hour
	firstKeptWait = time.Minute
	maxKeptWait   = 24 * time.Hour
)

// timesUnmoved returns how often the message was poison before and stayed in its queue. The mark in
// its head keeps the count of deliveries accounted for as it was at the first time; see
// recordedText. Without a mark, because the text could not be rewritten, all deliveries count of
// which nothing is recorded.
func (v *delivery) timesUnmoved() int64 {
	if v.marked {
		return v.lostDeliveries() + 1
	}
	return v.lostDeliveries()
}

// moveDelay returns how long a message waits whose move has failed. That is at least as long as a
// failed attempt would, as far as that grows while there are attempts left, and grows with every
// failed move, because nothing bounds their number.
func (v *delivery) moveDelay(err error) time.Duration {
	maxTries := int64(max(v.attempt(), v.maxAttempts()))
	tries := max(v.attempt(), int(min(v.queued.DequeueCount, maxTries)))
	return v.untilSeenAgain(max(v.retryDelay(tries, err), v.unmovedDelay(firstMoveWait, maxMoveWait)))
}

// keptDelay returns how long a message waits that is poison and may not be moved.
func (v *delivery) keptDelay() time.Duration {
	return v.untilSeenAgain(v.unmovedDelay(firstKeptWait, maxKeptWait))
}

// unmovedDelay returns a delay between the bounds for poison that was not moved.
func (v *delivery) unmovedDelay(first, longest time.Duration) time.Duration {
	n := v.timesUnmoved()
	return doubled(first, longest, n, waiting.Jitter(string(v.queued.ID), int(min(n, math.MaxInt32))))
}

// untilSeenAgain bounds the delay by half of the message's remaining life: it is to be delivered
// again before it is gone.
func (v *delivery) untilSeenAgain(delay time.Duration) time.Duration {
	if v.lease.messageEnd.IsZero() {
		return delay
	}
	return max(min(delay, time.Until(v.lease.messageEnd)/2), 0)
}

// doubled returns first, doubled n times, ± 10 %, within first and longest; spread is its jitter in
// [0, 1).
func doubled(first, longest time.Duration, n int64, spread float64) time.Duration {
	d := math.Ldexp(float64(first), int(min(max(n, 0), 64))) * (0.9 + 0.2*spread)
	return max(time.Duration(min(d, float64(longest))), first)
}
