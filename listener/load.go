package listener

import (
	"github.com/millrace/millrace/dispatcher"
)

// load returns what the listener knows of its load, given the depth.
func (s *session) load(depth int64) Load {
	running, settling := s.dispatcher.Running()
	active, _, _ := s.pool.counts()
	now := s.rates.current()
	return Load{
		Depth: depth, Loops: active, Running: running, Settling: settling,
		Slots: s.dispatcher.Capacity(), BatchSize: s.options.BatchSize,
		Arrival: now.arrival, Intake: now.intake, Service: now.service, Handling: now.handling,
	}
}

// totals returns what was counted since the start.
func (s *session) totals() totals {
	t := totals{received: s.received.Load(), ended: s.ended()}
	t.handled, t.handling = s.dispatcher.Handled()
	for o := dispatcher.Deleted; o <= dispatcher.Duplicate; o++ {
		t.settled += s.dispatcher.Count(o)
	}
	return t
}

// ended returns how many messages were taken off the queue.
func (s *session) ended() int64 {
	return s.dispatcher.Count(dispatcher.Deleted) + s.dispatcher.Count(dispatcher.Discarded) +
		s.dispatcher.Count(dispatcher.Poisoned) + s.dispatcher.Count(dispatcher.Duplicate)
}
