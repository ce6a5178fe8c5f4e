package listener

import (
	"sync"
	"time"

	"github.com/millrace/millrace/scaling"
)

// messagesPerDepth is how many messages must have been received since the depth was
// last read before it is worth another transaction, unless the queue was idle.
const messagesPerDepth = 256

// scale is what is known about the load, and who is finding out more.
type scale struct {
	mu      sync.Mutex
	busy    bool      // work was found after the last empty poll; guarded by mu
	reading bool      // somebody reads the depth; guarded by mu
	since   int       // messages received since it was read; guarded by mu
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
	ask := !s.scale.busy || full && s.scale.since >= messagesPerDepth && s.fleet.canGrow()
	if !ask || s.scale.reading {
		s.scale.mu.Unlock()
		return
	}
	s.scale.busy = true
	if full {
		s.scale.reading = true
		s.scale.since = 0
	}
	s.scale.mu.Unlock()

	if !full {
		running, _ := s.dispatcher.Running()
		s.resize(int64(max(running, received)))
		return
	}
	// Beside the loop, which has the next batch to fetch.
	s.work.Go(s.readDepth)
}

// readDepth is one transaction, and resizes the fleet. One runs at a time.
func (s *session[T]) readDepth() {
	properties, err := s.queue.Properties(s.requests)
	s.scale.mu.Lock()
	s.scale.reading = false
	if err == nil {
		s.scale.depth, s.scale.at = properties.Depth, time.Now()
	}
	s.scale.mu.Unlock()
	if err != nil {
		if s.requests.Err() == nil {
			s.report.poll(err)
		}
		return
	}
	s.resize(properties.Depth)
}

// resize starts the loops that the depth deserves.
func (s *session[T]) resize(depth int64) {
	running, _ := s.dispatcher.Running()
	active, _, _ := s.fleet.counts()
	target := s.options.QueueWorkDetected(scaling.Load{
		Depth: depth, Loops: active, Running: running, BatchSize: s.options.BatchSize,
	})
	s.grow(target)
}
