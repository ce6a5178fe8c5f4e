package sharded

import (
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// How long a shard rests after its first failure in a row, and at most.
const (
	firstRest = 100 * time.Millisecond
	maxRest   = 30 * time.Second
)

// shard is one of the queues. What follows its hash is guarded by Queue.mu.
type shard struct {
	queue queue.Queue
	name  queue.Name
	hash  uint64 // of the name

	used     int64         // the number of the message that was placed here last
	underway int           // messages that were placed here and have not returned
	removed  bool          // it is not among the shards any more
	idle     chan struct{} // closed when it is removed and nothing is under way

	failures int           // in a row
	probe    waiting.Probe // by a message, after failures; the shard rests until then
	err      error         // of the last failure in a row
	accepted int64         // messages

	known bool  // the depth was read the last time
	depth int64 // at that reading
	since int64 // messages that were placed here since
}

// rests reports whether messages go elsewhere for now.
func (s *shard) rests(now time.Time) bool {
	return s.failures > 0 && !s.probe.Possible(now)
}

// succeeded records that a request was answered with success.
func (s *shard) succeeded() {
	s.failures, s.err = 0, nil
	s.probe.Pause(time.Time{})
}

// failed records a failure. Those that come while it rests do not count: they belong to requests that began
// earlier, or that had nowhere else to go.
func (s *shard) failed(err error, now time.Time) {
	if s.err = err; now.Before(s.probe.Due()) {
		return
	}
	s.probe.Pause(now.Add(waiting.Doubled(firstRest, s.failures, maxRest)))
	s.failures++
}

// State is what a [Queue] knows of one shard without asking it.
type State struct {
	Queue    queue.Name `json:"queue"`
	Accepted int64      `json:"accepted"` // messages of this Queue that the shard has accepted

	// RestsUntil is when the shard is tried again. The zero time means that it takes part; a time that has
	// passed that the next message tries it, or that one is doing so.
	RestsUntil time.Time `json:"restsUntil,omitzero"`

	// Err is the last failure for which it rests, nil if it takes part.
	Err error `json:"-"`
}

// States returns the states of the shards, in the order in which they were added. It sends no request.
func (q *Queue) States() []State {
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]State, len(q.shards))
	for i, s := range q.shards {
		states[i] = State{Queue: s.name, Accepted: s.accepted, RestsUntil: s.probe.Due(), Err: s.err}
	}
	return states
}
