package dispatcher

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// move copies the message to the poison queue and then deletes it. If the copy fails the
// message is given back, so that it is not lost.
func (s *settlement) move(dec decision) error {
	if err := s.copy(s.record(dec), dec); err != nil {
		delay := s.moveDelay(dec.err)
		back := s.giveBack(request.CausePoison, delay, s.poisonText(dec))
		if back == nil {
			s.delay = delay
		}
		return errors.Join(copyError{err}, back)
	}
	if err := s.remove(request.CausePoison, func() string { return s.poisonText(dec) }); !errors.Is(err, queue.ErrMessageGone) {
		return err
	}
	return nil // it expired meanwhile: only the copy is left
}

// record returns the message as the poison queue keeps it.
func (s *settlement) record(dec decision) poisonrecord.Record {
	m := s.queued
	m.Text = s.poisonedText()
	r := poisonrecord.New(s.dispatcher.name, m, s.failures(dec), dec.reason, dec.err)
	r.LastSeen = s.lease.asked.UTC()
	if s.enveloped() && s.head.Poison == "" { // without an envelope nothing is recorded of any delivery
		r.Lost = s.lostDeliveries()
	}
	r.Stack = poisonrecord.Stack(stackOf(dec.err))
	return r
}

// poisonedText returns the text for the poison queue. A redrive handles the items that are not
// done, so nothing else is recorded of a group.
func (s *settlement) poisonedText() string {
	if s.head.Items == 0 {
		return s.queued.Text
	}
	head := s.head
	head.Failed, head.Failure, head.Started = "", "", ""
	text := s.withHead(head)
	if driver.CheckRequest(text, 0) != nil {
		return s.queued.Text
	}
	return text
}

// copy writes the record to the poison queue, with as many tries as SettleTimeout allows. The
// lease is no longer renewed, and a message that is delivered again before it is given back
// would be handled again. So when half of the remaining lease has passed, the message first
// gets a longer lease, with a text that marks it as poison.
func (s *settlement) copy(record poisonrecord.Record, dec decision) error {
	d := s.dispatcher
	left := max(s.lease.left()/2, time.Second)
	over, err := s.copyWithin(min(left, d.options.SettleTimeout), record)
	if err == nil || !over || left >= d.options.SettleTimeout {
		return err
	}
	longer := s.withinLife(wholeSeconds(2*d.options.SettleTimeout + safetyMargin))
	fresh, renewed := d.queue.Update(d.requests.because(request.CausePoison), s.lease.newest, s.poisonText(dec), longer)
	if renewed != nil {
		return errors.Join(err, renewed)
	}
	s.lease.newest = fresh
	_, err = s.copyWithin(d.options.SettleTimeout, record)
	return err
}

// copyWithin tries for up to the limit, and reports whether it was reached.
func (s *settlement) copyWithin(limit time.Duration, record poisonrecord.Record) (over bool, err error) {
	ctx, cancel := context.WithTimeout(s.dispatcher.requests.because(request.CausePoison), limit)
	defer cancel()
	err = poisonrecord.Policy(s.dispatcher.options.Poison).Copy(ctx, record)
	return ctx.Err() != nil, err
}

// failures returns how many attempts have failed, including this one if its handler ran.
func (s *settlement) failures(dec decision) int {
	if !dec.called && s.enveloped() {
		return s.head.Attempts
	}
	return s.attempt()
}

// poisonText returns the text that marks the message as poison, so that no handler sees it
// again while it stays in its queue.
func (s *settlement) poisonText(dec decision) string {
	failed := s.attempt() - 1
	switch dec.reason {
	case poison.ReasonAttempts, poison.ReasonExpiring: // a rejection is not a failure, nor is a snooze
		if dec.called && dec.err != nil {
			failed++
		}
	}
	head := s.head
	head.Poison = string(dec.reason)
	return s.recordedText(head, failed, dec.called)
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
func (o *opened) timesUnmoved() int64 {
	if o.head.Poison != "" {
		return o.lostDeliveries() + 1
	}
	return o.lostDeliveries()
}

// moveDelay returns how long a message waits after a failed move. It waits at least as long as
// after a failed attempt, as far as that delay grows while attempts are left. The delay grows with
// every failed move, because nothing bounds their number.
func (s *settlement) moveDelay(err error) time.Duration {
	maxTries := int64(max(s.attempt(), s.maxAttempts()))
	tries := max(s.attempt(), int(min(s.queued.DequeueCount, maxTries)))
	return untilSeenAgain(s.opened, max(retryWait(s.opened, tries, err), unmovedDelay(s.opened, firstMoveWait, maxMoveWait)))
}

// keptDelay returns how long a message waits that is poison and may not be moved.
func keptDelay(o *opened) time.Duration {
	return untilSeenAgain(o, unmovedDelay(o, firstKeptWait, maxKeptWait))
}

// unmovedDelay returns a delay between the bounds for poison that was not moved.
func unmovedDelay(o *opened, first, longest time.Duration) time.Duration {
	n := o.timesUnmoved()
	return doubled(first, longest, n, waiting.Jitter(string(o.queued.ID), int(min(n, math.MaxInt32))))
}

// untilSeenAgain bounds the delay by half of the message's remaining life: it is to be delivered
// again before it is gone.
func untilSeenAgain(o *opened, delay time.Duration) time.Duration {
	if o.lease.messageEnd.IsZero() {
		return delay
	}
	return max(min(delay, time.Until(o.lease.messageEnd)/2), 0)
}

// doubled returns first, doubled n times, ± 10 %, within first and longest; spread is its jitter in
// [0, 1).
func doubled(first, longest time.Duration, n int64, spread float64) time.Duration {
	d := math.Ldexp(float64(first), int(min(max(n, 0), 64))) * (0.9 + 0.2*spread)
	return max(time.Duration(min(d, float64(longest))), first)
}
