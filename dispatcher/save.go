package dispatcher

import (
	"bytes"
	"context"
	"errors"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// save replaces the body of the message and renews its lease.
func (v *delivery) save(ctx context.Context, body []byte) error {
	head := v.head
	if !bytes.Equal(body, v.body) {
		// The job has made progress: earlier lost deliveries no longer count.
		head.Settled, head.Starts = max(v.queued.DequeueCount-1, 0), 0
	}
	text, err := codec.Seal(head, body, v.format)
	if err != nil {
		return err
	}
	if err := v.fits(text, body); err != nil {
		return err
	}
	if err := v.dispatcher.leases.rewrite(ctx, &v.lease, text); err != nil {
		return err
	}
	v.body, v.queued.Text = body, text
	v.head.Settled, v.head.Starts = head.Settled, head.Starts
	return nil
}

// fits returns an error if the text, which carries the body, is too large to be sent or leaves
// no room to record later attempts and snoozes.
func (v *delivery) fits(text string, body []byte) error {
	if err := queue.CheckText(text); err != nil {
		return err
	}
	if v.enveloped() {
		return queue.CheckRequest(text, v.head.Room())
	}
	if v.dispatcher.options.Adopt { // an attempt is recorded in an envelope
		adopted, err := codec.Seal(v.head, body, codec.Envelope)
		if err != nil {
			return err
		}
		if err := queue.CheckRequest(adopted, v.head.Room()); err != nil {
			return err
		}
	}
	return queue.CheckRequest(text, 0)
}

// rewrite renews the lease with another text, now. It waits for a renewal in flight, because it
// needs the newest receipt.
func (k *leaseManager) rewrite(ctx context.Context, l *lease, text string) error {
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

	err := k.renewNow(l)
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

// waitForRenewal waits until no renewal of the lease is in flight. The manager starts none
// meanwhile: where renewals are slow the next one is due when the last one returns, and a save could
// wait for ever. Requires mu, which it unlocks while it waits.
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
