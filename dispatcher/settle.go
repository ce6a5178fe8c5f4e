package dispatcher

import (
	"context"
	"errors"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// settlement holds the results of the requests that settle a message. settle writes it.
type settlement struct {
	*opened // of the same delivery

	delay    time.Duration // before the message is visible again, by the decision or because poison could not be moved
	deleted  bool          // whether it is certain that the message was deleted
	released bool          // whether it was given back
	hidden   time.Duration // for how long, then; less than delay if the service has refused that
}

// settle carries out a decision with the newest receipt, frees the slot, and counts the
// outcome. Its requests do not use the stopping context: handled messages are deleted even
// while the worker stops.
func (v *delivery) settle(dec decision) {
	d := v.dispatcher
	var begin time.Time // reading the clock is not free
	if d.options.Observer.Settled != nil {
		begin = time.Now()
	}
	late := dec.outcome == Lost && dec.returned
	if late {
		d.visibility.recordLate(v.lease.visibility) // before the slot is free: the next dequeue must know
	}
	for i := len(d.stages) - 1; i >= 0; i-- {
		d.stages[i].decided(v, dec)
	}
	v.freeSlot()

	s := &v.settlement
	s.opened = &v.opened
	s.delay = v.withinLife(dec.delay)
	outcome, err := dec.outcome, s.apply(dec)
	switch {
	case err == nil:
		for i := len(d.stages) - 1; i >= 0; i-- {
			d.stages[i].settled(v, outcome)
		}
	case leaseGone(err):
		outcome = Lost
	default:
		outcome = Unsettled
	}
	if outcome == Lost && dec.returned && !late {
		d.visibility.recordLate(v.lease.visibility)
	}
	d.counts[slices.Index(outcomes[:], outcome)].Add(1)
	d.slots.endSettlement(err == nil)
	// A hook may end the goroutine: the steps after it are deferred.
	defer d.remove(v)
	defer v.report(dec, outcome, err)
	if s.released {
		d.delayed.add(wholeSeconds(s.hidden))
		// After the settlement has ended, so that the loop that it wakes finds its room.
		if f := d.options.OnRelease; f != nil {
			f(time.Now().Add(wholeSeconds(s.hidden)), dec.forOthers)
		}
	}
	if f := d.options.Observer.Poisoned; f != nil && (outcome == Poisoned || outcome == Kept) {
		f(v.described(), dec.reason, dec.err)
	}
	if f := d.options.Observer.Settled; f != nil {
		f(v.described(), outcome, time.Since(begin))
	}
}

// report reports a delivery that did not succeed.
func (v *delivery) report(dec decision, outcome Outcome, err error) {
	if err = errors.Join(dec.err, err); err == nil {
		return
	}
	v.dispatcher.options.OnError(&DeliveryError{
		Delivery: v.described(), Outcome: outcome, Delay: v.settlement.delay, Reason: dec.reason, Err: err,
	})
}

// apply sends the requests of a decision.
func (s *settlement) apply(dec decision) error {
	switch dec.outcome {
	case Deleted, Discarded, Duplicate:
		if s.lease.state == expired {
			// One try: if another worker has the message by now the receipt is stale and
			// nothing happens; if not, a duplicate is avoided.
			err := s.dispatcher.queue.Delete(s.dispatcher.requests.because(request.CauseDelete), s.lease.newest)
			s.deleted = err == nil
			return err
		}
		return s.remove(request.CauseDelete, s.leasedText)
	case Retried, Snoozed, Returned:
		failures := s.attempt() - 1
		if dec.outcome == Retried && !s.excused {
			failures++
		}
		return s.giveBack(request.CauseGiveBack, s.delay, s.recordedText(s.head, failures, dec.called))
	case Kept:
		return s.giveBack(request.CausePoison, s.delay, s.poisonText(dec))
	case Poisoned:
		return s.move(dec)
	}
	return nil // Lost: there is nothing to settle
}

// try sends a request, and sends it again until the lease ends, or SettleTimeout has passed if that is
// later: even then nobody may have the message. After SettleTimeout the error is reported. No try has
// a timer of ours, which would cost more than everything else here: a Queue bounds its own requests.
func (s *settlement) try(cause request.Cause, request func(context.Context) error) error {
	d := s.dispatcher
	ctx := d.requests.because(cause)
	err := request(ctx)
	if err == nil || !repeatable(err) {
		return err
	}
	begin, reported := time.Now(), false
	waits := retry.NewWaits(string(s.queued.ID), retry.FirstWait, retry.MaxWait)
	for sent := 1; ; sent++ {
		if !queue.Transient(err) || errors.Is(err, queue.ErrThrottled) {
			d.slots.refused()
		}
		late := time.Since(begin) >= d.options.SettleTimeout
		if late && s.lease.left() <= 0 {
			return err
		}
		if late && !reported {
			d.options.OnError(err)
			reported = true
		}
		wait := waits.After(err)
		if left := s.lease.left(); left > 0 {
			wait = min(wait, max(left, retry.FirstWait)) // a last try before another worker gets the message
		}
		if !waiting.For(wait, ctx.Done()) {
			return err
		}
		if err = request(retry.Repeated(ctx, sent)); err == nil || !repeatable(err) {
			return err
		}
	}
}

// repeatable reports whether a request of a settlement is worth another try. Without permission it
// is, because a role or a token may come while the lease lasts.
func repeatable(err error) bool {
	return queue.Transient(err) || errors.Is(err, queue.ErrLimited) || errors.Is(err, queue.ErrUnauthorized)
}

// remove deletes the message. While the service refuses that, the lease is renewed with the text, or
// the message would come again. If it is gone after a try of unknown outcome, that try deleted it.
// That is certain only while the lease lasts: after that another worker may have deleted it, and
// copied it to the poison queue before.
func (s *settlement) remove(cause request.Cause, text func() string) error {
	unknown := false
	return s.try(cause, func(ctx context.Context) error {
		var err error
		if retry.Repeats(ctx) > 0 && s.lease.left() < s.lease.visibility/2 {
			err = s.renew(text())
		}
		if !leaseGone(err) {
			err = s.dispatcher.queue.Delete(ctx, s.lease.newest)
		}
		if unknown && errors.Is(err, queue.ErrMessageGone) {
			s.deleted = s.lease.left() > 0
			return nil
		}
		s.deleted = err == nil
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
}

// renew renews the lease of a message that is being deleted. The text is sent again, because an
// update without one clears it.
func (s *settlement) renew(text string) error {
	d := s.dispatcher
	asked := time.Now()
	visibility := s.withinLife(d.visibility.forRenewal(d.leases.count(), asked.Sub(s.lease.asked)))
	if visibility <= safetyMargin {
		return nil
	}
	fresh, err := d.queue.Update(d.requests.because(request.CauseRenew), s.lease.newest, text, visibility)
	if err == nil {
		s.lease.newest, s.lease.expiry = fresh, asked.Add(visibility-safetyMargin)
	}
	return err
}

// leasedText returns the text that a renewal sends again.
func (s *settlement) leasedText() string {
	if s.lease.progress != nil {
		return s.lease.progress(s.lease.text)
	}
	return s.lease.text
}

// giveBack makes the message visible again after the delay. The text records the outcome, since an
// update must resend it anyway. After a try of unknown outcome a receipt mismatch means that the
// try took effect or that another worker has the message; either is fine.
//
// In the last second of its life the message is left hidden until it is gone: no delay fits in, and
// it would be fetched and given back as fast as requests go.
func (s *settlement) giveBack(cause request.Cause, delay time.Duration, text string) error {
	if s.lifeEnds(time.Second) {
		return nil
	}
	unknown := false
	err := s.try(cause, func(ctx context.Context) (err error) {
		delay, err = s.update(ctx, delay, text)
		if errors.Is(err, queue.ErrTooLarge) && text != s.queued.Text {
			// There is no room for the record.
			text = s.queued.Text
			delay, err = s.update(ctx, delay, text)
		}
		if unknown && errors.Is(err, queue.ErrReceiptMismatch) {
			return nil
		}
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	s.released, s.hidden = err == nil, delay
	return err
}

// update sends the update that gives the message back, and returns the delay it asked for. The
// service refuses one that goes beyond the message's expiry and then records nothing, so such
// an update is repeated with a shorter delay.
func (s *settlement) update(ctx context.Context, delay time.Duration, text string) (time.Duration, error) {
	for delay = s.withinLife(delay); ; delay = (delay / 4).Truncate(time.Second) {
		if delay > 0 {
			delay = max(delay, time.Second) // the service counts in seconds
		}
		_, err := s.dispatcher.queue.Update(ctx, s.lease.newest, text, delay)
		if s.lease.messageEnd.IsZero() || delay == 0 || !errors.Is(err, queue.ErrInvalid) {
			return delay, err
		}
	}
}

// delayed counts messages that were given back until they are due. Messages that are due at about
// the same time share a count: the times are rounded up to whole seconds, or for delays from 32 s
// on to a power of two of seconds that is at most a sixteenth of the delay. So there are at most 32
// counts for each of the 16 powers up to the longest delay, and a message is counted up to a
// sixteenth of its delay too long. The zero value is ready to use.
type delayed struct {
	mu    sync.Mutex
	epoch time.Time       // start of second 0; guarded by mu
	due   map[int64]int64 // how many are due, by second; guarded by mu
	swept int64           // the second of the last removal; guarded by mu
}

// add counts a message that is due after this delay.
func (d *delayed) add(delay time.Duration) {
	if delay <= 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due == nil {
		d.due, d.epoch = make(map[int64]int64), time.Now()
	}
	width := int64(1)
	if coarse := int64(delay/time.Second) / 16; coarse > 1 {
		width = 1 << (bits.Len64(uint64(coarse)) - 1)
	}
	due := time.Since(d.epoch) + delay
	second := int64((due + time.Second - 1) / time.Second)
	second = (second + width - 1) / width * width
	d.due[second]++
	d.sweep()
}

// count returns how many messages are not due yet.
func (d *delayed) count() (n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.due == nil {
		return 0
	}
	d.sweep()
	for _, one := range d.due {
		n += one
	}
	return n
}

// sweep removes the counts that are due, once a second. Requires mu.
func (d *delayed) sweep() {
	now := int64(time.Since(d.epoch) / time.Second)
	if now == d.swept {
		return
	}
	d.swept = now
	for second := range d.due {
		if second <= now {
			delete(d.due, second)
		}
	}
}

// Delayed returns how many messages this dispatcher has given back that are not due yet, such as
// retries and snoozes, and poison that it keeps hidden. It cannot know of later deletions, such as
// by a purge. Times are rounded up: a message counts up to a second too long, or up to a sixteenth
// of its delay if that is longer.
func (d *Dispatcher) Delayed() int64 { return d.delayed.count() }

// freeSlot frees the slot when the settlement begins.
func (v *delivery) freeSlot() {
	slots := v.dispatcher.slots
	switch {
	case v.admission.batch != nil: // the handler must not run
		slots.beginSettlement()
		v.admission.batch.unused.Add(1)
		v.admission.decideSlot()
	case v.running.slot.CompareAndSwap(slotTaken, slotFreed):
		slots.freeForSettlement(v.tracked())
	default: // given up: another handler has the slot
		slots.beginSettlement()
	}
}

// sealed returns the body in the text of the message; it is empty if the message has a claim. The
// format is the one recognised at first, because a saved body may look like another.
func (o *opened) sealed() ([]byte, error) {
	_, body, _, err := envelope.Open(o.queued.Text, o.format, o.dispatcher.features...)
	return body, err
}

// withHead returns the text of the message with another head in an envelope, or the text as it is
// if the message cannot be read.
func (o *opened) withHead(head envelope.Head) string {
	if o.body == nil {
		return o.queued.Text
	}
	body, err := o.sealed() // with a saved body; the handler may have changed o.body in place
	if err != nil {
		return o.queued.Text
	}
	text, err := envelope.Seal(head, body, codec.Envelope)
	if err == nil && driver.CheckRequest(text, 0) != nil { // the record matters more than when the job was sent
		head.Enqueued = time.Time{}
		text, err = envelope.Seal(head, body, codec.Envelope)
	}
	if err != nil {
		return o.queued.Text
	}
	return text
}

// recordedText returns the text with this many failures, and the deliveries accounted for. A
// message without an envelope is not rewritten unless it is adopted; an unreadable one never
// is.
func (o *opened) recordedText(head envelope.Head, failures int, called bool) string {
	if !o.recordable() {
		return o.queued.Text
	}
	head.Attempts = failures
	head.Settled, head.Starts, head.Started = o.queued.DequeueCount, 0, ""
	if !called && o.enveloped() && head.Poison == "" && o.lostDeliveries() > 0 {
		// No handler started: only this delivery is accounted for, not the ones before it.
		head.Settled, head.Starts, head.Started = o.head.Settled+1, o.starts, o.head.Started
	}
	if o.head.Poison != "" { // later deliveries count the failed moves
		head.Settled = o.head.Settled
	}
	text := o.withHead(head)
	if head.Fingerprint != "" && driver.CheckRequest(text, head.Room()) != nil {
		head.Fingerprint = ""
		text = o.withHead(head)
	}
	return text
}
