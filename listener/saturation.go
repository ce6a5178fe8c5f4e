package listener

import (
	"context"
	"time"
)

// watchSaturation looks for a backlog that nobody notices because all open slots are taken
// by slow handlers and nobody dequeues. The session owns it, until ctx ends.
func (s *session[T]) watchSaturation(ctx context.Context) {
	timer := time.NewTimer(depthInterval)
	defer timer.Stop()
	for {
		raised := false
		select {
		case <-timer.C:
		case <-s.scaler.raised: // somebody waits for what it opens
			raised = true
		case <-ctx.Done():
			return
		}
		timer.Reset(s.checkSaturation(raised))
	}
}

// weighSaturated reads the depth if all open slots are taken and more may be opened, unless
// it was read not long ago. If there is more than we hold, and that deserves more loops,
// the loop that waits may dequeue once. Not more than that, because it may be others who
// hold it: only a full batch is a backlog, and then the depth is weighed again. It returns
// when to look again.
func (s *session[T]) checkSaturation(raised bool) (wait time.Duration) {
	if !s.dispatcher.Saturated() || !s.pool.canGrow() {
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
