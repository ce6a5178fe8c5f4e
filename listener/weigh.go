package listener

import (
	"context"
	"sync"
	"time"
)

// messagesPerDepth is how many messages must have been received since the depth was
// last read before it is worth another transaction, unless the queue was idle.
const messagesPerDepth = 256

// depthInterval is how long after a reading the depth is worth another one though few
// messages were received: with slow handlers that many take hours.
const depthInterval = 30 * time.Second

// scale is what is known about the load, and who is finding out more.
type scale struct {
	raised chan struct{} // has room for one: more loops are allowed than before

	mu      sync.Mutex
	busy    bool      // work was found after the last empty poll; guarded by mu
	reading bool      // somebody reads the depth; guarded by mu
	since   int       // messages received since it was read; guarded by mu
	asked   time.Time // when that reading began; guarded by mu
	depth   int64     // last known; guarded by mu
	at      time.Time // when; guarded by mu
}

// rest notes an empty poll: the next batch is work on an idle queue.
func (s *scale) rest() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// weigh asks how many loops the load deserves and starts them. It is called after
// every batch that held something: on the edge from idle to busy, of which the start
// is one, and otherwise only while full batches keep coming (L-15, X-11). The edge is
// the listener's, not each loop's: a fleet that wakes up together asks once. The depth
// costs a transaction, so it is read only when a full batch says that there is more
// than was fetched; a batch that was not full has emptied the queue, and then the
// depth is what we hold.
func (s *session[T]) weigh(received int, full bool) {
	s.scale.mu.Lock()
	s.scale.since += received
	more := full && (s.scale.since >= messagesPerDepth || time.Since(s.scale.asked) >= depthInterval)
	ask := !s.scale.busy || more && s.fleet.canGrow()
	if !ask || s.scale.reading {
		s.scale.mu.Unlock()
		return
	}
	s.scale.busy = true
	if full {
		s.scale.begin()
	}
	s.scale.mu.Unlock()

	if !full {
		// What runs beyond the room of the loops was fetched by others, which have ended since:
		// the queue is empty, and it is no reason to start them again.
		running, _ := s.dispatcher.Running()
		active, _, _ := s.fleet.counts()
		s.resize(int64(max(min(running, active*s.options.BatchSize), received)))
		return
	}
	// Beside the loop, which has the next batch to fetch.
	s.work.Go(func() {
		if depth, ok := s.readDepth(); ok {
			s.resize(depth)
		}
	})
}

// begin notes that its caller reads the depth. Requires mu.
func (s *scale) begin() { s.reading, s.since, s.asked = true, 0, time.Now() }

// readDepth is one transaction. One runs at a time, which its caller has begun.
func (s *session[T]) readDepth() (depth int64, ok bool) {
	properties, err := s.queue.Properties(s.requests)
	s.scale.mu.Lock()
	s.scale.reading = false
	if err == nil {
		s.scale.depth, s.scale.at = properties.Depth, time.Now()
	}
	s.scale.mu.Unlock()
	if err != nil && s.requests.Err() == nil {
		s.report.poll(err)
	}
	return properties.Depth, err == nil
}

// watchSaturation looks for a backlog that nobody notices because all open slots are taken
// by slow handlers and nobody dequeues. The session owns it, until ctx ends.
func (s *session[T]) watchSaturation(ctx context.Context) {
	timer := time.NewTimer(depthInterval)
	defer timer.Stop()
	for {
		raised := false
		select {
		case <-timer.C:
		case <-s.scale.raised: // somebody waits for what it opens
			raised = true
		case <-ctx.Done():
			return
		}
		timer.Reset(s.weighSaturated(raised))
	}
}

// weighSaturated reads the depth if all open slots are taken and more may be opened, unless
// it was read not long ago. If there is more than we hold, and that deserves more loops,
// the loop that waits may dequeue once. Not more than that, because it may be others who
// hold it: only a full batch is a backlog, and then the depth is weighed again. It returns
// when to look again.
func (s *session[T]) weighSaturated(raised bool) (wait time.Duration) {
	if !s.dispatcher.Saturated() || !s.fleet.canGrow() {
		return depthInterval
	}
	s.scale.mu.Lock()
	wait = depthInterval - time.Since(s.scale.asked)
	if s.scale.reading || wait > 0 && !raised {
		s.scale.mu.Unlock()
		return max(wait, time.Second)
	}
	s.scale.begin()
	s.scale.mu.Unlock()

	depth, ok := s.readDepth()
	running, settling := s.dispatcher.Running()
	active, _, _ := s.fleet.counts()
	if ok && depth > int64(running+settling) && s.deserved(depth) > active {
		s.scale.mu.Lock()
		s.scale.since = messagesPerDepth
		s.scale.mu.Unlock()
		s.dispatcher.OpenOnce(s.options.BatchSize)
	}
	return depthInterval
}

// resize starts the loops that the depth deserves.
func (s *session[T]) resize(depth int64) { s.grow(s.deserved(depth)) }

// deserved is how many loops the depth deserves, bounds apart.
func (s *session[T]) deserved(depth int64) int {
	running, _ := s.dispatcher.Running()
	active, _, _ := s.fleet.counts()
	return s.options.QueueWorkDetected(Load{
		Depth: depth, Loops: active, Running: running, BatchSize: s.options.BatchSize,
	})
}
