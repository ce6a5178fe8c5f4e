package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// A message is poison as lost when too many of its handlers started without a result: it may be
// killing its workers. Deliveries alone do not prove that, because the response to a dequeue may
// get lost. So an update records that a handler is about to start, from the second delivery on that
// follows a recorded settlement. The first is not recorded and does not count, because that would
// cost every message an update.
//
// A process excludes harmless starts from the count: handlers that never started because the
// response to the update was lost, and handlers that returned although their lease was lost. The
// remaining starts have ended their process, or another process received the message next.

// maxExcluded bounds how many starts of a message are excluded because their handlers returned
// here, so that a job which loses its lease every time does not run for ever.
const maxExcluded = 20

// maxRemembered bounds for how many messages starts are remembered. Forgotten starts count.
const maxRemembered = 4096

// recordedStart describes the last start that this process recorded, or tried to record, for a
// message that has not been settled since.
type recordedStart struct {
	delivery int64 // its dequeue count
	settled  int64 // deliveries accounted for at that time
	attempts int   // failed attempts at that time
	since    int64 // the last delivery whose start was no longer recorded in the message by then
	read     int   // starts in the message if the record did not take effect
	written  int   // starts in the message if it did
	excluded int   // how many of them are excluded
	returned int   // how many were excluded because the handler returned
	over     bool  // the start of this delivery is excluded
}

// countedStarts returns how many of the starts recorded in the head of a later delivery count,
// which has this many before it. If other processes have recorded more since, it may be unknown
// whether our record took effect; then the lowest possible number is returned. So it is if it may
// have been settled since, or only given back unstarted: see [opened.recordedText].
func (s recordedStart) countedStarts(head envelope.Head, before int64) int {
	givenBack := before - s.delivery // at most
	if head.Settled >= s.delivery-1 && (head.Settled-s.settled > givenBack || head.Attempts > s.attempts) {
		// It was settled or saved since, and these are new starts. Only the progress of a group whose
		// items take turns keeps the start of its own delivery.
		if s.over && head.Started != "" && head.Settled-(s.delivery-1) <= givenBack {
			return max(head.Starts-1, 0)
		}
		return head.Starts
	}
	base := s.written
	if head.Starts >= s.read {
		base = max(base, s.read)
	}
	return min(s.written-s.excluded+max(head.Starts-base, 0), head.Starts)
}

// starts is the stage that records starts, and remembers the ones that this process has recorded.
// The zero value is ready to use.
type starts struct {
	passive

	mu   sync.Mutex
	byID map[queue.ID]recordedStart // guarded by mu
}

// remember replaces the record of the message. Before is the record when the starts were counted:
// starts excluded since then, while the record was in flight, are excluded in it too.
func (s *starts) remember(id queue.ID, one, before recordedStart) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[queue.ID]recordedStart)
	}
	known, found := s.byID[id]
	if !found && len(s.byID) >= maxRemembered {
		for other := range s.byID {
			delete(s.byID, other)
			break
		}
	}
	if one.settled < known.delivery { // not settled since
		one.returned = known.returned
	}
	if one.since = known.since; one.settled >= known.delivery-1 {
		one.since = known.delivery // it has saved and may still run
	} else if known.delivery == before.delivery {
		one.excluded += known.excluded - before.excluded
	}
	s.byID[id] = one
}

// nextRound notes that this delivery is about to begin another round of its group: the message will have
// this many starts, and the handlers of the round before have returned.
func (s *starts) nextRound(v *delivery, written int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.byID[v.queued.ID]
	if known && one.delivery == v.queued.DequeueCount && written > one.written {
		one.excluded += written - one.written
		one.written = written
		s.byID[v.queued.ID] = one
	}
}

func (s *starts) recall(id queue.ID) (one recordedStart, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known = s.byID[id]
	return one, known
}

// exclude excludes the recorded start of a delivery: its handler returned or did not run. It is
// called immediately and not when the delivery is settled, because the message may be delivered
// here again before that.
func (s *starts) exclude(id queue.ID, delivery int64, ran bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.byID[id]
	if !known || delivery <= max(one.settled, one.since) || delivery > one.delivery || ran && one.returned >= maxExcluded {
		return
	}
	one.excluded++
	one.over = one.over || delivery == one.delivery
	if ran {
		one.returned++
	}
	s.byID[id] = one
}

// forget removes the record of the message up to this delivery.
func (s *starts) forget(id queue.ID, delivery int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[id].delivery <= delivery {
		delete(s.byID, id)
	}
}

// count sets how many of the recorded starts count, and returns this process's record of the last
// one. There cannot be more settlements and starts than deliveries: a head that says so is forged,
// or was copied from another message, and its counts are ignored. So are the mark of poison, and a
// number of attempts that would make it poison: somebody has put its text back by hand.
func (s *starts) count(o *opened) (last recordedStart) {
	before := o.before()
	if int64(o.head.Starts) > before-o.head.Settled {
		o.head.Settled, o.head.Starts, o.head.Poison = 0, 0, ""
		if o.attempt() > o.maxAttempts() {
			o.head.Attempts = 0
		}
	}
	if o.head.Starts == 0 { // a worker that does not know of turns has settled it since
		o.head.Started = ""
	}
	o.starts = o.head.Starts
	if o.starts == 0 {
		return last
	}
	last, known := s.recall(o.queued.ID)
	if known {
		o.starts = last.countedStarts(o.head, before)
	}
	return last
}

// admit records in the message that its handler is about to start, if that is necessary. It refuses
// the message if that is impossible, or takes too much of the lease.
func (s *starts) admit(v *delivery) (dec decision, refused bool) {
	v.admission.keepSlot()
	if v.lostDeliveries() == 0 || !v.enveloped() {
		return decision{}, false
	}
	d := v.dispatcher
	head := v.head
	head.Starts = v.starts + 1
	text, err := envelope.Seal(head, v.body, codec.Envelope)
	if err == nil {
		err = s.write(&v.opened, v.admission.lastStart, text)
	}
	switch {
	case errors.Is(err, queue.ErrTooLarge): // no room for the record: deliveries count instead
		if v.lostDeliveries() < int64(d.maxLost()) {
			return decision{}, false
		}
		if v.head.Items == 0 && v.head.Claim == "" {
			// Earlier deliveries may have been to workers that cannot read it, like this one.
			if unread := v.job.decodeBody(); errors.Is(unread, codec.ErrNewer) {
				return unreadable(&v.opened, unread), true
			}
		}
		return poisoned(&v.opened, poison.ReasonLost, fmt.Errorf("%d deliveries in a row ended in nothing, and there is no room to record which of them were started: %w", v.lostDeliveries(), err)), true
	case err != nil:
		return decision{outcome: Lost, err: fmt.Errorf("record the start of its handler: %w", err)}, true
	}
	s.remember(v.queued.ID, thisStart(&v.opened, head.Starts), v.admission.lastStart)
	v.head.Starts, v.queued.Text, v.lease.text = head.Starts, text, text
	v.admission.recorded = true
	if v.lease.left() <= 0 {
		d.visibility.recordTooShort(v.lease.visibility)
		return decision{outcome: Lost, err: ErrLeaseExpired}, true
	}
	return decision{}, false
}

// write updates the message with the text, retrying while the lease lasts; a success renews the
// lease. Before is the record when the starts were counted. If it is unknown whether an update took
// effect, so is the newest receipt, and no handler can start.
func (s *starts) write(o *opened, before recordedStart, text string) error {
	d := o.dispatcher
	ctx, cancel := context.WithDeadline(d.requests.because(request.CauseStart), o.lease.expiry)
	defer cancel()
	unknown := false
	err := retry.Do(ctx, string(o.queued.ID), queue.Transient, func(ctx context.Context) error {
		asked := time.Now()
		visibility := o.withinLife(max(o.lease.visibility, d.Visibility()))
		fresh, err := d.queue.Update(ctx, o.lease.newest, text, visibility)
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, queue.ErrReceiptMismatch)
		if err == nil {
			o.lease.newest, o.lease.asked, o.lease.visibility = fresh, asked, visibility
			o.lease.expiry = asked.Add(visibility - safetyMargin)
		}
		return err
	})
	if err != nil && unknown {
		one := thisStart(o, o.head.Starts)
		one.excluded++ // the handler never starts
		s.remember(o.queued.ID, one, before)
	}
	return err
}

// thisStart returns the record of the start of this delivery, given the number in the message if
// the update fails.
func thisStart(o *opened, read int) recordedStart {
	return recordedStart{
		delivery: o.queued.DequeueCount, settled: o.head.Settled, attempts: o.head.Attempts, read: read, written: o.starts + 1,
	}
}

// returned notes that the recorded start of this delivery did not end the process.
func (s *starts) returned(v *delivery, called bool) {
	if v.admission.recorded {
		s.exclude(v.queued.ID, v.queued.DequeueCount, called)
	}
}

// settled forgets the message's starts when it is deleted. After a give-back they are
// remembered, because the service may not have received it.
func (s *starts) settled(v *delivery, outcome Outcome) {
	switch outcome {
	case Deleted, Discarded, Duplicate, Poisoned:
		if v.lostDeliveries() > 0 && v.enveloped() {
			s.forget(v.queued.ID, v.queued.DequeueCount)
		}
	}
}
