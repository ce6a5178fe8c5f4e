package dispatcher

import (
	"bytes"
	"context"
	"errors"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// save replaces the body of the message and renews its lease.
func (v *delivery) save(ctx context.Context, body []byte) error {
	g, c := v.running.group, &v.admission.claim
	if v.unchanged(body) { // only the lease is renewed
		text := v.queued.Text
		if g != nil {
			text = g.withProgress(text)
		}
		return v.dispatcher.leases.rewrite(ctx, request.CauseSave, &v.lease, text)
	}
	head := v.head
	if g != nil {
		g.recordProgress(&head)
	}
	v.progressed(&head)
	head.Fingerprint = ""
	text, stored, err := v.store(ctx, head, body)
	if err != nil {
		return err
	}
	if err := v.dispatcher.leases.rewrite(ctx, request.CauseSave, &v.lease, text); err != nil {
		// The message may have either body, also after a refusal: the network may have delivered
		// the update twice, and refused is then only the second.
		c.unsure = append(c.unsure, stored)
		return err
	}
	private := c.unsure // no message refers to them any more
	if c.saved {
		private = append(private, v.head.Claim)
	} else {
		c.saved, c.original = true, v.head.Claim
	}
	c.unsure = nil
	v.queued.Text = text
	if stored != "" {
		c.sum = sumOf(body)
	}
	v.head.Settled, v.head.Starts, v.head.Claim = head.Settled, head.Starts, stored
	v.head.Done, v.head.Failed, v.head.Failure = head.Done, head.Failed, head.Failure
	for _, claim := range private {
		v.settleClaim(claim)
	}
	return nil
}

// progressed notes in the head that the job has made progress: earlier lost deliveries no longer
// count. The present start does if items of a group take turns.
func (o *opened) progressed(head *envelope.Head) {
	head.Settled, head.Starts = o.before(), 0
	if head.Started != "" {
		head.Starts = 1
	}
}

// unchanged reports whether the message has that body. It does not look at the body that the codec
// got: one that does not copy, such as codec.Bytes, lets the handler change it in place.
func (v *delivery) unchanged(body []byte) bool {
	if v.head.Claim != "" {
		return sumOf(body) == v.admission.claim.sum
	}
	was, err := v.sealed()
	return err == nil && bytes.Equal(body, was)
}

// fits returns an error if the text, which carries head and body, is too large to be sent or leaves
// no room to record later attempts and snoozes.
func (o *opened) fits(head envelope.Head, text string, body []byte) error {
	if err := driver.CheckText(text); err != nil {
		return err
	}
	if o.enveloped() {
		return driver.CheckRequest(text, head.Room())
	}
	if o.dispatcher.options.AcceptForeign { // an attempt is recorded in an envelope
		adopted, err := envelope.Seal(head, body, codec.Envelope)
		if err != nil {
			return err
		}
		if err := driver.CheckRequest(adopted, head.Room()); err != nil {
			return err
		}
	}
	return driver.CheckRequest(text, 0)
}

// rewrite renews the lease with another text, now. It waits for a renewal in flight, because it
// needs the newest receipt.
func (k *leaseManager) rewrite(ctx context.Context, why request.Cause, l *lease, text string) error {
	k.mu.Lock()
	if err := k.waitForRenewal(ctx, l); err != nil {
		k.mu.Unlock()
		return err
	}
	if l.state == lost || l.index < 0 {
		k.mu.Unlock()
		return ErrLeaseLost
	}
	old := l.text
	l.text = text
	l.running = make(chan struct{})
	k.reschedule(l)
	k.mu.Unlock()

	_, err := k.send(l, why)
	if err != nil && !errors.Is(err, queue.ErrOutcomeUnknown) {
		k.mu.Lock()
		l.text = old
		k.mu.Unlock()
	}
	if leaseGone(err) {
		return errors.Join(ErrLeaseLost, err)
	}
	return err
}

// waitForRenewal waits until no renewal of the lease is in flight. The manager starts no renewal
// meanwhile: where renewals are slow the next one is due when the last one returns, and a save
// could wait for ever. Requires mu, which it unlocks while it waits.
func (k *leaseManager) waitForRenewal(ctx context.Context, l *lease) error {
	if l.running == nil {
		return nil
	}
	l.saves++
	defer func() {
		l.saves--
		k.reschedule(l)
		k.signal()
	}()
	for l.running != nil {
		running := l.running
		k.mu.Unlock()
		select {
		case <-running:
		case <-ctx.Done():
			k.mu.Lock()
			return context.Cause(ctx)
		}
		k.mu.Lock()
	}
	return nil
}
