package listener

import (
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// messagesPerDepth is how many messages must have been received since the depth was last read
// before it is read again, unless the queue was idle.
const messagesPerDepth = 256

// depthInterval is how long after a reading the depth is read again although few messages were
// received: with slow handlers that many take hours.
const depthInterval = 30 * time.Second

// scaler is what is known about the load, and whether the depth is being read.
type scaler struct {
	raised chan struct{} // buffered, one: more loops are allowed than before

	mu      sync.Mutex
	busy    bool      // work was found since the last empty poll; guarded by mu
	reading bool      // the depth is being read; guarded by mu
	since   int       // messages received since the depth was read; guarded by mu
	asked   time.Time // when the last reading began; guarded by mu
	depth   int64     // last known; guarded by mu
	at      time.Time // when; guarded by mu
}

// markIdle records an empty poll: the next batch is work on an idle queue.
func (s *scaler) markIdle() {
	s.mu.Lock()
	s.busy = false
	s.mu.Unlock()
}

// rescale asks how many loops the load calls for and starts them. It is called after every
// batch with messages. It asks when work appears on an idle queue, including at the start, and
// otherwise only while full batches keep coming. The edge from idle to busy is the listener's,
// not each loop's, so that loops that wake up together ask once. Reading the depth costs a
// transaction, so it is read only after a full batch; a batch that was not full has emptied the
// queue, and then the depth is what this listener holds. With a LoopController it asks only at that edge. If the queue may have more than the batch, the depth
// also decides whether another instance is woken; rescale returns true if it is not read and one must be.
func (s *session) rescale(received int, full, more bool) (wake bool) {
	s.scaler.mu.Lock()
	s.scaler.since += received
	again := full && (s.scaler.since >= messagesPerDepth || time.Since(s.scaler.asked) >= depthInterval)
	ask := !s.scaler.busy || again && s.growsByDepth()
	if !ask || s.scaler.reading {
		s.scaler.mu.Unlock()
		return more
	}
	s.scaler.busy = true
	if full {
		s.scaler.beginReading()
		s.pauses.claimed()
	}
	s.scaler.mu.Unlock()

	if !full {
		// Handlers beyond the slots of the running loops were fetched by loops that have ended
		// since: the queue is empty, and they are no reason to start loops again.
		running, _ := s.dispatcher.Running()
		active, _, _ := s.pool.counts()
		s.growFor(int64(max(min(running, active*s.options.BatchSize), received)))
		return more
	}
	// Not on the loop's goroutine, which dequeues the next batch meanwhile.
	s.work.Go(func() {
		depth, ok := s.readDepth()
		if ok {
			s.growFor(depth)
		}
		running, settling := s.dispatcher.Running()
		if more && (!ok || depth > int64(max(running+settling, received))) {
			s.wakeAnother()
		}
	})
	return false
}

// beginReading records that the caller reads the depth. Requires mu.
func (s *scaler) beginReading() { s.reading, s.since, s.asked = true, 0, time.Now() }

// readDepth reads the depth, in one transaction. The caller has called beginReading, so one
// runs at a time.
func (s *session) readDepth() (depth int64, ok bool) {
	properties, err := s.readProperties(queue.WithCause(s.requests, queue.CauseDepth))
	s.scaler.mu.Lock()
	s.scaler.reading = false
	if err == nil {
		s.scaler.depth, s.scaler.at = properties.Depth, time.Now()
		s.rates.depthRead(properties.Depth)
	}
	s.scaler.mu.Unlock()
	if err != nil && s.requests.Err() == nil {
		s.report.poll(err)
	}
	return properties.Depth, err == nil
}

// growFor starts the loops that the depth calls for beside those that run.
func (s *session) growFor(depth int64) {
	if s.pool.growBeside(s.targetLoops(depth), s.startLoop) > 0 {
		s.notifyScaled()
	}
}

// targetLoops returns how many loops the depth calls for, regardless of the bounds.
func (s *session) targetLoops(depth int64) int { return s.options.QueueWorkDetected(s.load(depth)) }

// growsByDepth reports whether a backlog is a reason to read the depth and start loops: not with a controller, which learns from
// the dequeues whether more loops bring more, and with which all slots are open.
func (s *session) growsByDepth() bool { return s.controller.next == nil && s.pool.canGrow() }
