package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// endOfWait returns when the handler ended or, without one, until when the delivery may have waited for its
// body.
func (b *ledger) endOfWait(d *delivery) time.Duration {
	c := b.world.plan.claims
	if d.began == nil && d.message.job.claimed && c.hangs && c.outage.covers(d.entry.at) {
		return c.outage.from + c.outage.long
	}
	return d.over()
}

// why returns the cause of a delivery after which the message was neither deleted nor given back, or "".
func (b *ledger) why(d *delivery) string {
	a, s := d.message, b.workers[d.who]
	later := a.deliveries[d.entry.count:]
	switch {
	case d.began == nil && s.lostResponse(d.entry.at):
		return "the response to the dequeue was lost"
	case d.began == nil && s.arrivals[d.entry.at] == faultqueue.Dequeue:
		return "the dequeue arrived after its caller had given up"
	case d.began == nil && s.doubledDequeue(d.entry.at):
		return "the dequeue was executed twice"
	case a.dropped:
		return "the queue was dropped"
	case a.acceptance.until > 0 && a.acceptance.until <= b.endOfWait(d)+s.plan.settling()+maxCall:
		return "the message expired meanwhile"
	case s.abandoned[a.id] > 0:
		return "the handler was abandoned"
	case s.state.Outcomes[listener.Unsettled] > 0 && s.cutShort(d):
		return "the settlement was cut off by the stop"
	case s.failedAfter(d, faultqueue.Delete):
		return "a delete failed"
	case s.failedAfter(d, faultqueue.Update):
		return "an update failed"
	case d.copied && len(later) == 0 && a.removed != nil:
		return "deleted by an earlier delivery"
	case d.copied && s.badCopies:
		return "the copy was made and the response lost"
	case s.slowResponse(d.entry.at): // no handler starts, or its settlement comes too late
		return "the response to the dequeue took too long"
	case d.reported > 0:
		return "the handler was stuck"
	case s.diedOver(d):
		return "the worker died"
	}
	return ""
}

// failedAfter reports whether such a call about the message failed, or took long, after its
// delivery. Calls that the service would have refused in any case do not count.
func (s *worker) failedAfter(d *delivery, op faultqueue.Op) bool {
	return slices.ContainsFunc(s.failed[d.message.id], func(c faultqueue.Call) bool {
		refused := c.Fault == "" && (c.Error == queue.ErrInvalid.Error() || c.Error == queue.ErrTooLarge.Error())
		return c.Op == op && s.birth+c.At >= d.entry.at && !refused
	})
}

// maxCall is the longest duration of a call.
const maxCall = 25 * time.Second

// maxSettlement is the longest duration of a settlement: a failing copy and a give-back, with slow
// calls and retries.
const maxSettlement = 2 * time.Minute

// diedOver reports whether the worker died before the delivery was settled.
func (s *worker) diedOver(d *delivery) bool {
	last := d.entry.at
	switch {
	case s.death == 0:
		return false
	case d.ended != nil:
		last = d.ended.at
	case d.began != nil:
		return true
	}
	return s.death-last <= maxSettlement
}

// cutShort reports whether the worker may have had no time to settle: it was halted, or the handler
// returned after the stop.
func (s *worker) cutShort(d *delivery) bool {
	return s.plan.ending == halted || s.plan.ending == hurried || d.ended != nil && s.stopped > 0 && d.ended.at > s.stopped
}

// lostResponse reports whether the response to a dequeue at the instant was lost.
func (s *worker) lostResponse(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Error != "" })
}

// slowResponse reports whether the response to a dequeue at the instant was slow.
func (s *worker) slowResponse(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Fault == faultqueue.Slow })
}

// doubledDequeue reports whether a dequeue at the instant may have been the first of two that the
// server executed for one call, whose response was dropped.
func (s *worker) doubledDequeue(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Fault == faultqueue.Duplicate })
}

// dequeued reports whether a dequeue for which like is true was in progress at the instant.
func (s *worker) dequeued(at time.Duration, like func(faultqueue.Call) bool) bool {
	return slices.ContainsFunc(s.dequeues, func(c faultqueue.Call) bool {
		return c.At+s.birth <= at && at <= c.At+s.birth+c.Took && like(c)
	})
}
