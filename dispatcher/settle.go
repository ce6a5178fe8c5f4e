package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// settle carries out a decision with the newest receipt, frees the slot, and counts the
// outcome. Its requests do not use the stopping context: handled messages are deleted even
// while the worker stops.
func (v *delivery) settle(dec decision, state leaseState, came progress) {
	d := v.dispatcher
	var begin time.Time // reading the clock is not free
	if d.options.Observer.Settled != nil {
		begin = time.Now()
	}
	v.recordHealth(dec, came == handled)
	late := dec.outcome == Lost && came == handled
	if late {
		d.visibility.recordLate(v.visibility) // before the slot is free: the next dequeue must know
	}
	if dec.handled {
		v.recordHandled(dec) // before the slot is free: the next message may be of the same job
	}
	v.freeSlot(came)

	dec.delay = v.withinLife(dec.delay)
	result := dec.outcome
	err := v.apply(&dec, state)
	switch {
	case err == nil:
		v.forgetStarts(result)
		v.settleClaims(result)
	case leaseGone(err):
		result = Lost
	default:
		result = Unsettled
	}
	if result == Lost && came == handled && !late {
		d.visibility.recordLate(v.visibility)
	}
	d.counts[result].Add(1)
	d.slots.endSettlement()
	// A hook may end the goroutine: what follows it is deferred.
	defer d.remove(v)
	defer v.reportError(dec, result, err)
	if v.released {
		d.delayed.add(wholeSeconds(v.delay))
	}
	v.notifyRelease() // after the settlement has ended, so that the loop that it wakes finds its room
	v.notifyObserver(dec, result, begin)
}

// reportError reports a delivery that did not succeed.
func (v *delivery) reportError(dec decision, result Outcome, err error) {
	if err = errors.Join(dec.err, err); err == nil {
		return
	}
	v.dispatcher.options.OnError(&DeliveryError{
		Delivery: v.described(), Outcome: result, Delay: dec.delay, Reason: dec.reason, Err: err,
	})
}

// notifyRelease reports when a message that was given back becomes visible again. A message that is
// left to others is not worth a poll: this worker would take it again before they see it.
func (v *delivery) notifyRelease() {
	if f := v.dispatcher.options.OnRelease; f != nil && v.released && !v.forOthers {
		f(time.Now().Add(wholeSeconds(v.delay)))
	}
}

func (v *delivery) notifyObserver(dec decision, result Outcome, begin time.Time) {
	o := &v.dispatcher.options.Observer
	if o.Poisoned != nil && (result == Poisoned || result == Kept) {
		o.Poisoned(v.described(), dec.reason, dec.err)
	}
	if o.Settled != nil {
		o.Settled(v.described(), result, time.Since(begin))
	}
}

// apply sends the requests of a decision. It changes the delay of poison that could not be moved.
func (v *delivery) apply(dec *decision, state leaseState) error {
	switch dec.outcome {
	case Deleted, Discarded, Duplicate:
		if state == expired {
			// One try: if another worker has the message by now the receipt is stale and
			// nothing happens; if not, a duplicate is avoided.
			err := v.dispatcher.queue.Delete(v.dispatcher.requests.because(queue.CauseDelete), v.queued.Lease)
			v.deleted = err == nil
			return err
		}
		return v.remove(queue.CauseDelete)
	case Retried:
		return v.giveBack(queue.CauseGiveBack, dec.delay, v.recordedText(v.attempt()))
	case Snoozed, GivenBack:
		return v.giveBack(queue.CauseGiveBack, dec.delay, v.recordedText(v.attempt()-1))
	case Kept:
		return v.giveBack(queue.CausePoison, dec.delay, v.poisonText(*dec))
	case Poisoned:
		return v.poison(dec)
	}
	return nil // Lost: there is nothing to settle
}

// try sends a request and retries transient failures within SettleTimeout. The first try has no
// timer of ours, which would cost more than everything else here: a Queue bounds its own
// requests.
func (v *delivery) try(cause queue.Cause, request func(context.Context) error) error {
	d := v.dispatcher
	parent := d.requests.because(cause)
	err := request(parent)
	if err == nil || !queue.Transient(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(parent, d.options.SettleTimeout)
	defer cancel()
	return retry.Again(ctx, string(v.queued.ID), err, queue.Transient, request)
}

// remove deletes the message. If it is gone after a try of unknown outcome, that try deleted
// it. That is certain only while the lease lasts: after that another worker may have deleted it, and
// copied it to the poison queue before.
func (v *delivery) remove(cause queue.Cause) error {
	unknown := false
	return v.try(cause, func(ctx context.Context) error {
		err := v.dispatcher.queue.Delete(ctx, v.queued.Lease)
		if unknown && errors.Is(err, queue.ErrMessageGone) {
			v.deleted = v.leaseLeft() > 0
			return nil
		}
		v.deleted = err == nil
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
}

// giveBack makes the message visible again after the delay, with a text that records what
// happened, since an update must resend the text anyway. After a try of unknown outcome a
// receipt mismatch means that the try took effect or that another worker has the message;
// either is fine.
//
// In the last second of its life the message is left hidden until it is gone: no delay fits in, and
// it would be fetched and given back as fast as requests go.
func (v *delivery) giveBack(cause queue.Cause, delay time.Duration, text string) error {
	if v.lifeEnds(time.Second) {
		return nil
	}
	unknown := false
	err := v.try(cause, func(ctx context.Context) (err error) {
		delay, err = v.update(ctx, delay, text)
		if errors.Is(err, queue.ErrTooLarge) && text != v.queued.Text {
			// There is no room for the record: give the message back without it.
			text = v.queued.Text
			delay, err = v.update(ctx, delay, text)
		}
		if unknown && errors.Is(err, queue.ErrReceiptMismatch) {
			return nil
		}
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	v.released, v.delay = err == nil, delay
	return err
}

// update sends the update that gives the message back, and returns the delay it asked for. The
// service refuses one that goes beyond the message's expiry and then records nothing, so such
// an update is repeated with a shorter delay.
func (v *delivery) update(ctx context.Context, delay time.Duration, text string) (time.Duration, error) {
	for delay = v.withinLife(delay); ; delay = (delay / 4).Truncate(time.Second) {
		_, err := v.dispatcher.queue.Update(ctx, v.queued.Lease, text, delay)
		if v.lease.messageEnd.IsZero() || delay == 0 || !errors.Is(err, queue.ErrInvalid) {
			return delay, err
		}
	}
}

// withinLife returns the delay, shortened to the message's remaining life.
func (v *delivery) withinLife(delay time.Duration) time.Duration {
	if v.lease.messageEnd.IsZero() {
		return delay
	}
	return min(delay, max(time.Until(v.lease.messageEnd), 0).Truncate(time.Second))
}

// failures returns how many attempts have failed, including this one if its handler ran.
func (v *delivery) failures() int {
	if !v.started() && v.enveloped() {
		return v.head.Attempts
	}
	return v.attempt()
}

// recordable reports whether an update of the message can record what happened to it.
func (v *delivery) recordable() bool {
	return v.enveloped() || v.dispatcher.options.Adopt && v.format != codec.Auto
}

// recordedText returns the text with this many failures, and the deliveries accounted for. A
// message without an envelope is not rewritten unless it is adopted; an unreadable one never
// is.
func (v *delivery) recordedText(failures int) string {
	if !v.recordable() {
		return v.queued.Text
	}
	head := v.head
	head.Attempts = failures
	head.Settled, head.Starts = v.queued.DequeueCount, 0
	if !v.started() && v.enveloped() && head.Poison == "" && v.lostDeliveries() > 0 {
		// No handler started: only this delivery is accounted for, not those before it. What a handler saved, which then
		// found its dependency exhausted, has accounted for them.
		head.Settled, head.Starts = v.head.Settled+1, v.starts
	}
	if v.marked { // what came since is how often it could not be moved
		head.Settled = v.head.Settled
	}
	if v.body == nil { // it could not be read
		return v.queued.Text
	}
	body, err := v.sealed() // the handler may have changed v.body in place
	if err != nil {
		return v.queued.Text
	}
	text, err := codec.Seal(head, body, codec.Envelope)
	if err != nil {
		return v.queued.Text
	}
	return text
}
