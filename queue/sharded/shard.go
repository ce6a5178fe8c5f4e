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
