package listener

import (
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
type scaler struct {
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
func (s *scaler) markIdle() {
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
func (s *session[T]) rescale(received int, full bool) {
	s.scaler.mu.Lock()
	s.scaler.since += received
	more := full && (s.scaler.since >= messagesPerDepth || time.Since(s.scaler.asked) >= depthInterval)
	ask := !s.scaler.busy || more && s.pool.canGrow()
	if !ask || s.scaler.reading {
		s.scaler.mu.Unlock()
		return
	}
	s.scaler.busy = true
	if full {
		s.scaler.beginReading()
	}
	s.scaler.mu.Unlock()

	if !full {
		// What runs beyond the room of the loops was fetched by others, which have ended since:
		// the queue is empty, and it is no reason to start them again.
		running, _ := s.dispatcher.Running()
		active, _, _ := s.pool.counts()
		s.growFor(int64(max(min(running, active*s.options.BatchSize), received)))
		return
	}
	// Beside the loop, which has the next batch to fetch.
	s.work.Go(func() {
		if depth, ok := s.readDepth(); ok {
			s.growFor(depth)
		}
	})
}

// begin notes that its caller reads the depth. Requires mu.
func (s *scaler) beginReading() { s.reading, s.since, s.asked = true, 0, time.Now() }

// readDepth is one transaction. One runs at a time, which its caller has begun.
func (s *session[T]) readDepth() (depth int64, ok bool) {
	properties, err := s.queue.Properties(s.requests)
	s.scaler.mu.Lock()
	s.scaler.reading = false
	if err == nil {
		s.scaler.depth, s.scaler.at = properties.Depth, time.Now()
	}
	s.scaler.mu.Unlock()
	if err != nil && s.requests.Err() == nil {
		s.report.poll(err)
	}
	return properties.Depth, err == nil
}

// resize starts the loops that the depth deserves.
func (s *session[T]) growFor(depth int64) { s.grow(s.targetLoops(depth)) }

// deserved is how many loops the depth deserves, bounds apart.
func (s *session[T]) targetLoops(depth int64) int {
	running, _ := s.dispatcher.Running()
	active, _, _ := s.pool.counts()
	return s.options.QueueWorkDetected(Load{
		Depth: depth, Loops: active, Running: running, BatchSize: s.options.BatchSize,
	})
}
