package listener

import (
	"context"
	"time"
)

// raisedWait is how long after higher bounds the open slots are looked at. The loops that the bounds
// start, and those that wait, take what slots there are first.
const raisedWait = 10 * time.Millisecond

// watchSaturation detects a backlog that goes unnoticed because slow handlers take all open
// slots and no loop dequeues. It runs until ctx ends; the session owns it.
func (s *session) watchSaturation(ctx context.Context) {
	timer := time.NewTimer(depthInterval)
	defer timer.Stop()
	for raised := false; ; {
		select {
		case <-timer.C:
			timer.Reset(s.checkSaturation(raised))
			raised = false
		case <-s.scaler.raised: // a loop may wait for the slots this opens
			timer.Reset(raisedWait)
			raised = true
		case <-ctx.Done():
			return
		}
	}
}

// checkSaturation reads the depth if all open slots are taken and more may be opened, unless it
// was read recently. If the queue holds more than this listener and that calls for more loops,
// the waiting loop may send one dequeue. Only one, because others may hold those messages: only
// a full batch proves a backlog, and then the depth is read again. It returns when to check
// again.
func (s *session) checkSaturation(raised bool) (wait time.Duration) {
	if !s.dispatcher.Saturated() || !s.growsByDepth() || s.pauses.paused() {
		return depthInterval
	}
	s.scaler.mu.Lock()
	wait = depthInterval - time.Since(s.scaler.asked)
	if s.scaler.reading || wait > 0 && !raised {
		s.scaler.mu.Unlock()
		return max(wait, time.Second)
	}
	s.scaler.beginReading()
	s.scaler.mu.Unlock()

	s.pool.beginReading()
	depth, ok := s.readDepth()
	running, settling := s.dispatcher.Running()
	active, _, _ := s.pool.counts()
	if ok && depth > int64(running+settling) && s.targetLoops(depth) > active {
		s.scaler.mu.Lock()
		s.scaler.since = messagesPerDepth
		s.scaler.mu.Unlock()
		s.dispatcher.OpenOnce(s.options.BatchSize)
	}
	return depthInterval
}
