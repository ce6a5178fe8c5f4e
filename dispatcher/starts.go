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

// A message is poison as lost when too many of its handlers started and were never heard
// of again: it may be what kills its workers. Deliveries alone say nothing, because an
// answer to a dequeue that is lost is one too. So from the second delivery on that follows
// no recorded settlement, an update records that a handler is about to start. The first is
// not recorded, and does not count: it would cost every message an update.
//
// What a process knows of a recorded start it can leave out of the count: that the handler
// never started, because the answer to the update was lost, or that it returned, though its
// lease was lost. Only starts that ended their process count for sure, and those whose
// message another process gets next.

// mostSpared bounds how many starts of a message are left out of the count because their
// handlers returned here, so that a job which loses its lease each time does not run for
// ever.
const maxExcluded = 20

// mostRemembered bounds for how many messages starts are remembered. What is forgotten
// counts.
const maxRemembered = 4096

// recordedStart is what a process knows of the last start that it recorded, or tried to
// record, of a message that is not settled since.
type recordedStart struct {
	delivery int64 // its dequeue count
	settled  int64 // how many deliveries were accounted for then
	since    int64 // the last delivery whose start was not in the message any more then
	read     int   // how many starts the message has if the record did not take effect
	written  int   // how many if it did
	excluded int   // how many of those need not count
	returned int   // how often one was spared because its handler returned
}

// counts tells how many of the starts that are recorded in the head of a later delivery
// count. When others have recorded more meanwhile it may not be known whether the record
// took effect; then it is as few as it can be.
func (s recordedStart) countedStarts(head codec.Head) int {
	if head.Settled >= s.delivery-1 {
		return head.Starts // it was settled meanwhile, or has come further, and these are others
	}
	base := s.written
	if head.Starts >= s.read {
		base = max(base, s.read)
	}
	return min(s.written-s.excluded+max(head.Starts-base, 0), head.Starts)
}

// starts remembers what this process recorded. Its zero value is ready.
type starts struct {
	mu   sync.Mutex
	byID map[queue.ID]recordedStart // guarded by mu
}

// remember replaces what is known of the message. Before is what was known when the starts were
// counted: what was spared since, while the record was on its way, is spared in it too.
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
	if one.settled < known.delivery { // it was not settled since
		one.returned = known.returned
	}
	if one.since = known.since; one.settled >= known.delivery-1 {
		one.since = known.delivery // it has saved, and may run yet
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

// spare leaves the recorded start of a delivery out of the count: its handler returned, or
// did not run at all. It is called at once, not when the delivery is settled: the message
// may be delivered here again meanwhile.
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

// forget drops what is known of the message up to the delivery.
func (s *starts) forget(id queue.ID, delivery int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[id].delivery <= delivery {
		delete(s.byID, id)
	}
}

// countStarts tells how many of the starts that the head records count. Deliveries cannot
// have been settled or started more often than there were any: such a head is forged, or
// was copied from another message.
func (v *delivery[T]) countStarts() {
	if before := max(v.queued.DequeueCount-1, 0); int64(v.head.Starts) > before-v.head.Settled {
		v.head.Settled, v.head.Starts = 0, 0
	}
	v.starts = v.head.Starts
	if v.starts == 0 {
		return
	}
	if one, known := v.dispatcher.starts.recall(v.queued.ID); known {
		v.starts, v.lastRecorded = one.countedStarts(v.head), one
	}
}

// recordStart records in the message that its handler is about to start, if it must be. It
// returns what is to be done with a message whose handler may not start then.
func (v *delivery[T]) recordStart() (dec decision, refused bool) {
	if v.lostDeliveries() == 0 || !v.enveloped() {
		return decision{}, false
	}
	d := v.dispatcher
	head := v.head
	head.Starts = v.starts + 1
	text, err := codec.Seal(head, v.body, codec.Envelope)
	if err == nil {
		err = v.writeStart(text)
	}
	switch {
	case errors.Is(err, queue.ErrTooLarge): // no room: then deliveries count
		if v.lostDeliveries() < int64(d.options.Poison.MaxLost) {
			return decision{}, false
		}
		return v.poisoned(poison.ReasonLost, fmt.Errorf("%d deliveries in a row ended in nothing, and there is no room to record which of them were started: %w", v.lostDeliveries(), err)), true
	case err != nil:
		return decision{outcome: Lost, err: fmt.Errorf("record that its handler starts: %w", err)}, true
	}
	d.starts.remember(v.queued.ID, v.lastStart(head.Starts), v.lastRecorded)
	v.head.Starts, v.queued.Text, v.lease.text = head.Starts, text, text
	v.startRecorded = true
	if time.Since(v.lease.asked) >= v.visibility-safetyMargin {
		d.visibility.recordTooShort(v.visibility)
		return decision{outcome: Lost, err: ErrLeaseExpired}, true
	}
	return decision{}, false
}

// announce updates the message with the text, as often as it takes while the lease lasts,
// which is renewed by it. When it is not known whether an update took effect the newest
// receipt is not known either, and no handler can start.
func (v *delivery[T]) writeStart(text string) error {
	d := v.dispatcher
	ctx, cancel := context.WithDeadline(d.requests.context(), v.lease.asked.Add(v.visibility-safetyMargin))
	defer cancel()
	unknown := false
	err := retry.Do(ctx, string(v.queued.ID), func(ctx context.Context) error {
		asked := time.Now()
		visibility := v.withinLife(max(v.visibility, d.Visibility()))
		fresh, err := d.queue.Update(ctx, v.queued.Lease, text, visibility)
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown) || errors.Is(err, queue.ErrReceiptMismatch)
		if err == nil {
			v.queued.Receipt, v.queued.Until = fresh.Receipt, fresh.Until
			v.lease.newest, v.lease.asked, v.visibility = fresh, asked, visibility
		}
		return err
	})
	if err != nil && unknown {
		one := v.lastStart(v.head.Starts)
		one.excluded++ // it never happened
		d.starts.remember(v.queued.ID, one, v.lastRecorded)
	}
	return err
}

// lastStart is what is known of the start of this delivery, given how many the message has
// if it was not recorded.
func (v *delivery[T]) lastStart(read int) recordedStart {
	return recordedStart{delivery: v.queued.DequeueCount, settled: v.head.Settled, read: read, written: v.starts + 1}
}

// survived tells that the recorded start of this delivery, if there is one, has not ended
// the process.
func (v *delivery[T]) excludeStart(came progress) {
	if v.startRecorded {
		v.dispatcher.starts.exclude(v.queued.ID, v.queued.DequeueCount, came == handled)
	}
}

// removed forgets the message's starts when it is deleted. Where it was given back they are
// remembered: the service may not have heard of it.
func (v *delivery[T]) forgetStarts(result Outcome) {
	switch result {
	case Deleted, Discarded, Poisoned:
		if v.lostDeliveries() > 0 && v.enveloped() {
			v.dispatcher.starts.forget(v.queued.ID, v.queued.DequeueCount)
		}
	}
}
