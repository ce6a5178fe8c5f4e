package simulation

import (
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// worker is a process in the ledger.
type worker struct {
	*process
	running int
	limits  []limit // what its settings were
	over    bool    // returned or died
	ending  bool    // was told to stop, or died
	pause   pauseState
	stopped time.Duration // when it was told to stop; 0 for not yet

	dequeues  []faultqueue.Call
	arrivals  map[time.Duration]faultqueue.Op // calls that arrived after their callers had given up
	failed    map[queue.ID][]faultqueue.Call  // calls about a message
	badCopies bool                            // whether any enqueue into the poison queue failed or was doubled
}

// limit has the settings of a worker from an instant on.
type limit struct {
	from time.Duration
	plan workerPlan
}

// newWorker returns the worker of a process, with its calls.
func newWorker(p *process) *worker {
	s := &worker{
		process: p, limits: []limit{{0, p.plan}},
		failed: make(map[queue.ID][]faultqueue.Call), arrivals: make(map[time.Duration]faultqueue.Op),
	}
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
	return s
}

// maxDequeue is how long after a change of settings a dequeue that was made under the old settings
// may arrive and its messages start.
const maxDequeue = 25 * time.Second

// concurrency returns how many handlers may run when one starts whose message was delivered at that
// instant.
func (s *worker) concurrency(delivered time.Duration) (most int) {
	for i, l := range s.limits {
		if i+1 == len(s.limits) || s.limits[i+1].from > delivered-maxDequeue {
			most = max(most, l.plan.concurrency)
		}
	}
	return most
}

// bounds returns the most handlers and loops that its settings ever allowed.
func (s *worker) bounds() (concurrency, loops int) {
	for _, l := range s.limits {
		concurrency, loops = max(concurrency, l.plan.concurrency), max(loops, l.plan.maxLoops())
	}
	return concurrency, loops * max(s.world.plan.shards.n, 1)
}

// minLoops is how many loops there must be.
func (s *worker) minLoops() int {
	return s.limits[len(s.limits)-1].plan.minLoops() * s.world.plan.shards.fewest()
}

// checkWorker checks what is true of a process whatever it does.
func (b *ledger) checkWorker(s *worker, e entry) {
	b.checkPause(s, e)
	switch e.kind {
	case died, returned:
		s.over = true
		b.returned(s, e)
	case stopping:
		s.stopped = e.at
	case configured:
		s.limits = append(s.limits, limit{e.at, s.limits[len(s.limits)-1].plan.with(e.settings)})
	case ended, cutOff, batched, saving, saved, itemEnded: // also of an abandoned handler
	case pausing, resuming: // by the program, at any time
	case sampled:
		concurrency, loops := s.bounds()
		if e.state.loops > loops || e.state.loops < s.minLoops() {
			b.addViolation(e, "%d loops run, want %d to %d", e.state.loops, s.minLoops(), loops)
		}
		if e.state.running > concurrency {
			b.addViolation(e, "State has %d running handlers, the concurrency is %d", e.state.running, concurrency)
		}
	case polled, delivered, copied, updated, deleted:
		if _, late := s.arrivals[e.at]; late {
			return // the worker has given this call up
		}
		if most := s.concurrency(e.at); e.kind == polled && (e.n > s.plan.batch || e.n+s.running > most) {
			b.addViolation(e, "a dequeue asks for %d with %d handlers running, batch %d and concurrency %d", e.n, s.running, s.plan.batch, most)
		}
		if e.kind == polled {
			b.checkReserves(s, e)
		}
		fallthrough
	default:
		if s.over {
			b.addViolation(e, "a worker acts after its end")
		}
	}
}

// returned checks that a worker has ended in time.
func (b *ledger) returned(s *worker, e entry) {
	if most := max(s.plan.grace, 0) + s.plan.settling() + maxHalt; e.kind == returned && e.at > s.stopped+most {
		b.addViolation(e, "the worker was stopped at %v and should have returned within %v", s.stopped, most)
	}
}

// closeWorker checks the counters of a listener against what its queue saw.
func (b *ledger) closeWorker(s *worker) {
	if s.death > 0 {
		return // nobody has read them
	}
	if s.err != nil && len(s.abandoned) == 0 {
		b.addViolation(entry{}, "%s: Run: %v", s.plan.name, s.err)
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
		b.addViolation(entry{}, "%s: State has %d polls, %d empty, %d received; want %d, %d, %d as in the queue's trace",
			s.plan.name, st.Polls, st.EmptyPolls, st.Received, polls, empty, received)
	}
	settled := st.Outcomes[listener.Deleted] + st.Outcomes[listener.Retried] + st.Outcomes[listener.Discarded] + st.Outcomes[listener.Poisoned] + st.Outcomes[listener.Kept] + st.Outcomes[listener.Snoozed] + st.Outcomes[listener.Returned] + st.Outcomes[listener.Lost] + st.Outcomes[listener.Unsettled] + st.Outcomes[listener.Duplicate]
	abandoned := int64(0)
	for _, n := range s.abandoned {
		abandoned += n
	}
	// A delivery that was abandoned may end while Run does, and is counted then.
	if settled > received || settled+abandoned < received {
		b.addViolation(entry{}, "%s: %d messages received, %d deliveries ended, %d abandoned: %+v", s.plan.name, received, settled, abandoned, st)
	}
	if len(s.abandoned) == 0 && (st.Running != 0 || st.Settling != 0) || st.Loops != 0 {
		b.addViolation(entry{}, "%s: State after Run: got %+v, want nothing running", s.plan.name, st)
	}
	least := s.plan.minLoops() * s.world.plan.shards.fewest()
	if _, loops := s.bounds(); st.LoopsPeak > loops || st.LoopsStarted < least {
		b.addViolation(entry{}, "%s: peak of %d loops, %d started; at least %d and at most %d may run", s.plan.name, st.LoopsPeak, st.LoopsStarted, least, loops)
	}
}
