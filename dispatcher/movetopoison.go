package dispatcher

import (
	"context"
	"errors"
	"time"

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
