package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// why explains a delivery after which the message was neither deleted nor given back.
func (b *books) why(d *delivery) string {
	a, s := d.account, b.staff[d.who]
	later := a.deliveries[d.entry.count:]
	switch {
	case d.began == nil && s.lostAnswer(d.entry.at):
		return "the answer to the dequeue was lost"
	case d.began == nil && s.arrivals[d.entry.at] == faultqueue.Dequeue:
		return "the dequeue arrived when nobody waited for it"
	case d.began == nil && s.doubledDequeue(d.entry.at):
		return "the dequeue was done twice"
	case a.dropped:
		return "the queue was dropped"
	case a.acceptance.until > 0 && a.acceptance.until <= d.over()+s.plan.settling()+longestCall:
		return "its life ended meanwhile"
	case s.abandoned[a.id] > 0:
		return "the handler was abandoned"
	case s.state.Unsettled > 0 && s.cutShort(d):
		return "the settlement was cut off by the stop"
	case s.failedAfter(d, faultqueue.Delete):
		return "a delete failed"
	case s.failedAfter(d, faultqueue.Update):
		return "an update failed"
	case d.copied && len(later) == 0 && a.removed != nil:
		return "deleted by an earlier delivery"
	case d.copied && s.badCopies:
		return "the copy was made and its answer lost"
	case s.slowAnswer(d.entry.at): // then nothing is started, or it ends in nothing
		return "the answer to the dequeue took too long"
	case d.reported > 0:
		return "the handler was stuck"
	case s.diedOver(d):
		return "the worker died"
	}
	return ""
}

// failedAfter tells whether such a call about the message failed, or took long, after it
// was delivered. What the service would have refused in any case is no excuse.
func (s *worker) failedAfter(d *delivery, op faultqueue.Op) bool {
	return slices.ContainsFunc(s.failed[d.account.id], func(c faultqueue.Call) bool {
		refused := c.Fault == "" && (c.Error == queue.ErrInvalid.Error() || c.Error == queue.ErrTooLarge.Error())
		return c.Op == op && s.birth+c.At >= d.entry.at && !refused
	})
}

// longestCall is how long one takes at most.
const longestCall = 25 * time.Second

// longestSettlement is how long it may take to copy, to fail with it and to give back, with
// slow calls and all that may be tried again.
const longestSettlement = 2 * time.Minute

// diedOver tells whether the worker died while the delivery was on its way, in its handler
// or being settled.
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
	return s.death-last <= longestSettlement
}

// cutShort tells whether the worker may not have been given the time to settle: it was
// halted, or the handler returned when its patience was over.
func (s *worker) cutShort(d *delivery) bool {
	return s.plan.ending == halted || s.plan.ending == hurried || d.ended != nil && s.stopped > 0 && d.ended.at > s.stopped
}

// lostAnswer tells whether a dequeue that the server answered at the instant never got
// back.
func (s *worker) lostAnswer(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Error != "" })
}

// slowAnswer tells whether one took long.
func (s *worker) slowAnswer(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Count > 0 && c.Fault == faultqueue.Slow })
}

// doubledDequeue tells whether one may have been the first of two that the server did for
// one call, whose answer nobody heard.
func (s *worker) doubledDequeue(at time.Duration) bool {
	return s.dequeued(at, func(c faultqueue.Call) bool { return c.Fault == faultqueue.Duplicate })
}

// dequeued tells whether a dequeue was under way at the instant, and was like this.
func (s *worker) dequeued(at time.Duration, like func(faultqueue.Call) bool) bool {
	return slices.ContainsFunc(s.dequeues, func(c faultqueue.Call) bool {
		return c.At+s.birth <= at && at <= c.At+s.birth+c.Took && like(c)
	})
}
