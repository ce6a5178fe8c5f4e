package listener

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue/metered"
)

// readDepth reads the depth, in one transaction. The owner lets one run at a time.
func (s *session) readDepth() (depth int64, ok bool) {
	properties, err := s.readProperties(metered.WithCause(s.requests, metered.CauseDepth))
	s.tell(event{what: depthRead, ok: err == nil, depth: properties.Depth})
	switch {
	case err == nil:
		s.rates.depthRead(properties.Depth)
	case s.requests.Err() == nil:
		s.report.poll(err)
	}
	return properties.Depth, err == nil
}

// scaleByDepth starts the loops that the depth calls for beside the running ones. It also wakes
// another instance if the queue may have more than this listener holds.
func (s *session) scaleByDepth(received int, more bool) {
	depth, ok := s.readDepth()
	if ok {
		s.tell(event{what: sized, target: s.targetLoops(depth)})
	}
	running, settling := s.dispatcher.Running()
	if more && (!ok || depth > int64(max(running+settling, received))) {
		s.tell(event{what: exceeded})
	}
}

// scaleByBatch is scaleByDepth after a batch that has emptied the queue. Handlers beyond the slots
// of the running loops were fetched by loops that have ended since, and are no reason to start
// loops again.
func (s *session) scaleByBatch(received int) {
	running, _ := s.dispatcher.Running()
	depth := max(min(running, s.snapshot().active*s.options.BatchSize), received)
	s.tell(event{what: sized, target: s.targetLoops(int64(depth))})
}

// lookAtDepth reads the depth because all open slots are taken.
func (s *session) lookAtDepth() {
	e := event{what: looked}
	depth, ok := s.readDepth()
	if running, settling := s.dispatcher.Running(); ok && depth > int64(running+settling) {
		e.target = s.targetLoops(depth)
	}
	s.tell(e)
}

// targetLoops returns how many loops the depth calls for, regardless of the bounds. If the program's own
// rule asks for more, the log says so once: the default bound follows from Concurrency, not from the rule.
func (s *session) targetLoops(depth int64) int {
	target := s.options.Fetch.QueueWorkDetected(s.load(depth))
	if most := s.snapshot().bounds.Max; s.explicit.rule && target > most && s.bounded.CompareAndSwap(false, true) {
		s.report.info("loops are bounded", slog.Int("asked", target), slog.Int("loops_max", most),
			slog.String("hint", "QueueWorkDetected asks for more loops than run: raise Loops.Max, or Concurrency, from which its default follows"))
	}
	return target
}

// askController asks the controller about the interval that has ended.
func (s *session) askController() {
	c := s.snapshot().control
	s.tell(event{what: steered, target: s.controller(interval{
		loops: c.loops, intake: float64(c.received) / max(c.took, time.Nanosecond).Seconds(), took: c.took,
		dequeues: c.dequeues, full: c.full, empty: c.empty, failed: c.failed, busy: c.busy,
	})})
}

// load returns the load of the listener, given the depth.
func (s *session) load(depth int64) Load {
	running, settling := s.dispatcher.Running()
	now := s.rates.current()
	return Load{
		Depth: depth, Loops: s.snapshot().active, Running: running, Settling: settling,
		Slots: s.dispatcher.Capacity(), BatchSize: s.options.BatchSize,
		Arrival: now.arrival, Intake: now.intake, Service: now.service, Handling: now.handling,
	}
}

// totals returns the counts since the start.
func (s *session) totals() totals {
	outcomes := s.dispatcher.Outcomes()
	t := totals{received: s.snapshot().received, ended: ended(outcomes)}
	t.handled, t.handling = s.dispatcher.Handled()
	for _, n := range outcomes {
		t.settled += n
	}
	return t
}

// ended returns how many messages were taken off the queue.
func ended(outcomes map[Outcome]int64) int64 {
	return outcomes[Deleted] + outcomes[Discarded] + outcomes[Poisoned] + outcomes[Duplicate]
}
