package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// A message is poison as lost when too many of its handlers started without a result: it may be
// what kills its workers. Deliveries alone do not prove that, because the response to a dequeue
// may get lost. So an update records that a handler is about to start, from the second delivery
// on that follows a recorded settlement. The first is not recorded and does not count, because
// that would cost every message an update.
//
// A process excludes from the count what it knows to be harmless: handlers that never started
// because the response to the update was lost, and handlers that returned although their lease
// was lost. What remains are starts that ended their process, and those whose message another
// process receives next.

// maxExcluded bounds how many starts of a message are excluded because their handlers returned
// here, so that a job which loses its lease every time does not run for ever.
const maxExcluded = 20

// maxRemembered bounds for how many messages starts are remembered. Forgotten starts count.
const maxRemembered = 4096

// recordedStart is what a process knows of the last start that it recorded, or tried to record,
// for a message that has not been settled since.
type recordedStart struct {
	delivery int64 // its dequeue count
	settled  int64 // deliveries accounted for at that time
	since    int64 // the last delivery whose start was no longer recorded in the message by then
	read     int   // starts in the message if the record did not take effect
	written  int   // starts in the message if it did
	excluded int   // how many of those are excluded
	returned int   // how many were excluded because the handler returned
}

// countedStarts returns how many of the starts recorded in the head of a later delivery count.
// If other processes have recorded more since, it may be unknown whether our record took
// effect; then the lowest possible number is returned.
func (s recordedStart) countedStarts(head codec.Head) int {
	if head.Settled >= s.delivery-1 {
		return head.Starts // it was settled or saved since, and these are new starts
	}
	base := s.written
	if head.Starts >= s.read {
		base = max(base, s.read)
	}
	return min(s.written-s.excluded+max(head.Starts-base, 0), head.Starts)
}

// starts is the stage that records starts, and remembers those that this process has recorded. The zero
// value is ready to use.
type starts struct {
	passive

	mu   sync.Mutex
	byID map[queue.ID]recordedStart // guarded by mu
}

// remember replaces what is known of the message. Before is what was known when the starts were
// counted: starts excluded since then, while the record was in flight, are excluded in it too.
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

func (s *starts) recall(id queue.ID) (one recordedStart, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known = s.byID[id]
	return one, known
}

// exclude excludes the recorded start of a delivery: its handler returned or did not run. It is
// called at once and not when the delivery is settled, because the message may be delivered
// here again before that.
func (s *starts) exclude(id queue.ID, delivery int64, ran bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, known := s.byID[id]
	if !known || delivery <= max(one.settled, one.since) || delivery > one.delivery || ran && one.returned >= maxExcluded {
		return
	}
	one.excluded++
	if ran {
		one.returned++
	}
	s.byID[id] = one
}

// forget removes what is known of the message up to this delivery.
func (s *starts) forget(id queue.ID, delivery int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[id].delivery <= delivery {
		delete(s.byID, id)
	}
}

// countStarts sets how many of the recorded starts count. There cannot be more settlements and
// starts than deliveries: a head that says so is forged, or was copied from another message,
// and its counts are ignored.
func (v *delivery) countStarts() {
	if before := max(v.queued.DequeueCount-1, 0); int64(v.head.Starts) > before-v.head.Settled {
		v.head.Settled, v.head.Starts = 0, 0
	}
	v.starts = v.head.Starts
	if v.starts == 0 {
		return
	}
	if one, known := v.dispatcher.starts.recall(v.queued.ID); known {
		v.starts, v.admission.lastStart = one.countedStarts(v.head), one
	}
}

// admit records in the message that its handler is about to start, if that is necessary. It refuses a
// message in which that is impossible, or after which too little of the lease is left.
func (s *starts) admit(v *delivery) (dec decision, refused bool) {
	v.keepSlot()
	if v.lostDeliveries() == 0 || !v.enveloped() {
		return decision{}, false
	}
	d := v.dispatcher
	head := v.head
	head.Starts = v.starts + 1
	text, err := codec.Seal(head, v.body, codec.Envelope)
	if err == nil {
		err = s.write(v, text)
	}
	switch {
	case errors.Is(err, queue.ErrTooLarge): // no room for the record: deliveries count instead
		if v.lostDeliveries() < int64(d.maxLost()) {
			return decision{}, false
		}
		return v.poisoned(poison.ReasonLost, fmt.Errorf("%d deliveries in a row ended in nothing, and there is no room to record which of them were started: %w", v.lostDeliveries(), err)), true
	case err != nil:
		return decision{outcome: Lost, err: fmt.Errorf("record the start of its handler: %w", err)}, true
	}
	s.remember(v.queued.ID, v.thisStart(head.Starts), v.admission.lastStart)
	v.head.Starts, v.queued.Text, v.lease.text = head.Starts, text, text
	v.admission.recorded = true
	if v.lease.left() <= 0 {
		d.visibility.recordTooShort(v.lease.visibility)
		return decision{outcome: Lost, err: ErrLeaseExpired}, true
	}
	return decision{}, false
}

// write updates the message with the text, retrying while the lease lasts; a success
// renews the lease. If it is unknown whether an update took effect, so is the newest receipt,
// and no handler can start.
func (s *starts) write(v *delivery, text string) error {
	d := v.dispatcher
	ctx, cancel := context.WithDeadline(d.requests.because(queue.CauseStart), v.lease.expiry)
	defer cancel()
	unknown := false
	err := retry.Do(ctx, string(v.queued.ID), queue.Transient, func(ctx context.Context) error {
		asked := time.Now()
		visibility := v.withinLife(max(v.lease.visibility, d.Visibility()))
		fresh, err := d.queue.Update(ctx, v.lease.newest, text, visibility)
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, queue.ErrReceiptMismatch)
		if err == nil {
			v.lease.newest, v.lease.asked, v.lease.visibility = fresh, asked, visibility
			v.lease.expiry = asked.Add(visibility - safetyMargin)
		}
		return err
	})
	if err != nil && unknown {
		one := v.thisStart(v.head.Starts)
		one.excluded++ // the handler never starts
		s.remember(v.queued.ID, one, v.admission.lastStart)
	}
	return err
}

// thisStart returns what is known of the start of this delivery, given the starts in the
// message if it was not recorded.
func (o *opened) thisStart(read int) recordedStart {
	return recordedStart{delivery: o.queued.DequeueCount, settled: o.head.Settled, read: read, written: o.starts + 1}
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
