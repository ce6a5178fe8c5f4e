package simulation

import (
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// worker is what the books know of a process.
type worker struct {
	*process
	running int
	over    bool          // returned or died
	stopped time.Duration // when it was told to stop; 0 for not yet

	dequeues  []faultqueue.Call
	arrivals  map[time.Duration]faultqueue.Op // what arrived when its caller had given up
	failed    map[queue.ID][]faultqueue.Call  // calls about a message
	badCopies bool                            // whether any enqueue into the poison queue failed or was doubled
}

// askedOf reads what the worker asked of the queue, as it saw it.
func (s *worker) askedOf() {
	s.failed = make(map[queue.ID][]faultqueue.Call)
	s.arrivals = make(map[time.Duration]faultqueue.Op)
	for _, c := range s.wire.Trace() {
		bad := c.Fault != "" || c.Error != ""
		if c.Fault == faultqueue.Arrival {
			s.arrivals[s.birth+c.At] = c.Op
		}
		switch {
		case c.Op == faultqueue.Dequeue:
			s.dequeues = append(s.dequeues, c)
		case c.Op == faultqueue.Enqueue:
			s.badCopies = s.badCopies || bad
		case bad:
			s.failed[c.Message] = append(s.failed[c.Message], c)
		}
	}
}

// onDuty checks what is true of a process whatever it does.
func (b *books) onDuty(s *worker, e entry) {
	switch e.kind {
	case died, returned:
		s.over = true
	case stopping:
		s.stopped = e.at
	case ended: // an abandoned handler may end when it likes
	case sampled:
		if e.state.loops > s.plan.loops.Max || e.state.loops < s.plan.loops.Min {
			b.complain(e, "%d loops run, outside %d…%d", e.state.loops, s.plan.loops.Min, s.plan.loops.Max)
		}
		if e.state.running > s.plan.concurrency {
			b.complain(e, "State says that %d handlers run, the concurrency is %d", e.state.running, s.plan.concurrency)
		}
	case polled, delivered, copied, updated, deleted:
		if _, late := s.arrivals[e.at]; late {
			return // of this the worker knows nothing any more
		}
		if e.kind == polled && (e.n > s.plan.batch || e.n+s.running > s.plan.concurrency) {
			b.complain(e, "a dequeue asks for %d with %d handlers running, batch %d and concurrency %d", e.n, s.running, s.plan.batch, s.plan.concurrency)
		}
		fallthrough
	default:
		if s.over {
			b.complain(e, "a worker acts after its end")
		}
	}
}

// closeWorker checks the counters of a listener against what its queue saw.
func (b *books) closeWorker(s *worker) {
	if s.death > 0 {
		return // nobody is left to read them
	}
	if s.err != nil && len(s.abandoned) == 0 {
		b.complain(entry{}, "%s: Run: %v", s.plan.name, s.err)
	}
	var polls, empty, received int64
	for _, c := range s.dequeues {
		if c.Error == "" && c.Fault != faultqueue.Arrival {
			polls++
			received += int64(c.Count)
			if c.Count == 0 {
				empty++
			}
		}
	}
	st := s.state
	if st.Polls != polls || st.EmptyPolls != empty || st.Received != received {
		b.complain(entry{}, "%s: State says %d polls, %d empty, %d received; the queue says %d, %d, %d",
			s.plan.name, st.Polls, st.EmptyPolls, st.Received, polls, empty, received)
	}
	settled := st.Succeeded + st.Retried + st.Discarded + st.Poisoned + st.Kept + st.Snoozed + st.GivenBack + st.Lost + st.Unsettled
	abandoned := int64(0)
	for _, n := range s.abandoned {
		abandoned += n
	}
	if settled+abandoned != received {
		b.complain(entry{}, "%s: %d messages received, %d deliveries ended, %d abandoned: %+v", s.plan.name, received, settled, abandoned, st)
	}
	if len(s.abandoned) == 0 && (st.Running != 0 || st.Settling != 0) || st.Loops != 0 {
		b.complain(entry{}, "%s: Run has returned and State says %+v", s.plan.name, st)
	}
	if st.LoopsPeak > s.plan.loops.Max || st.LoopsStarted < s.plan.loops.Min {
		b.complain(entry{}, "%s: peak of %d loops, %d started; the bounds are %+v", s.plan.name, st.LoopsPeak, st.LoopsStarted, s.plan.loops)
	}
}
