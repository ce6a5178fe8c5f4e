package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// poison copies the message to the poison queue and then deletes it. When the copy
// cannot be made the message goes back to its queue: it must not be lost for want
// of a place to put it.
func (v *delivery[T]) poison(dec decision) error {
	record := poison.NewRecord(v.dispatcher.name, v.queued, v.failures(), dec.reason, dec.err)
	if err := v.copy(record, dec); err != nil {
		return errors.Join(copyError{err}, v.giveBack(v.copyDelay(dec.err), v.poisonText(dec)))
	}
	if err := v.remove(); !errors.Is(err, queue.ErrMessageGone) {
		return err
	}
	return nil // its life ended meanwhile: the copy is what there is
}

// copy puts the record into the poison queue, in as many tries as SettleTimeout allows. Nobody
// renews the lease any more, and a message that is delivered again before it is given back
// would be handled again. So when half of what is left of the lease is over, the message first
// gets a longer one, with a text that says that it is poison.
func (v *delivery[T]) copy(record poison.Record, dec decision) error {
	d := v.dispatcher
	left := max(v.leaseLeft()/2, time.Second)
	over, err := v.copyWithin(min(left, d.options.SettleTimeout), record)
	if err == nil || !over || left >= d.options.SettleTimeout {
		return err
	}
	longer := v.withinLife(wholeSeconds(2*d.options.SettleTimeout + safetyMargin))
	fresh, renewed := d.queue.Update(d.requests.context(), v.queued.Lease, v.poisonText(dec), longer)
	if renewed != nil {
		return errors.Join(err, renewed)
	}
	v.queued.Receipt, v.queued.Until = fresh.Receipt, fresh.Until
	_, err = v.copyWithin(d.options.SettleTimeout, record)
	return err
}

// copyWithin tries for so long, and tells whether the time is over.
func (v *delivery[T]) copyWithin(limit time.Duration, record poison.Record) (over bool, err error) {
	ctx, cancel := context.WithTimeout(v.dispatcher.requests.context(), limit)
	defer cancel()
	err = v.dispatcher.options.Poison.Copy(ctx, record)
	return ctx.Err() != nil, err
}

// leaseLeft is how much is left of the lease of a message that nobody holds any more.
func (v *delivery[T]) leaseLeft() time.Duration {
	if v.ctx == nil { // no handler ran: nobody ever held it
		return time.Until(v.lease.asked.Add(v.visibility - safetyMargin))
	}
	return time.Until(v.lease.expiry)
}

// copyDelay is how long a message waits that could not be moved. It grows with its
// deliveries, also when few attempts failed, as far as it does for one whose attempts all
// did; and whatever the caller's RetryDelay says, it is a second at least: there is no bound
// to how often a copy is tried.
func (v *delivery[T]) copyDelay(err error) time.Duration {
	maxTries := int64(max(v.attempt(), v.dispatcher.options.Poison.MaxAttempts))
	tries := max(v.attempt(), int(min(v.queued.DequeueCount, maxTries)))
	delay := max(v.retryDelay(tries, err), time.Second)
	if !v.lease.messageEnd.IsZero() { // or it would not come up again to be copied
		delay = min(delay, time.Until(v.lease.messageEnd)/2)
	}
	return max(delay, 0)
}

// condemned returns the text of a message that is poison and stays in its queue: it says
// so, and no handler will see it again.
func (v *delivery[T]) poisonText(dec decision) string {
	v.head.Poison = string(dec.reason)
	failed := v.attempt() - 1
	switch dec.reason {
	case poison.ReasonAttempts, poison.ReasonExpiring: // to reject is no failure, nor is to snooze
		if v.ctx != nil && dec.err != nil {
			failed++
		}
	}
	return v.recordedText(failed)
}

// copyError hides what it wraps from errors.Is, so that a missing poison queue
// is not taken for a missing queue, while the text remains.
type copyError struct{ err error }

func (e copyError) Error() string { return e.err.Error() }
