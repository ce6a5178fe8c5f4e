package sharded

import (
	"time"

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

	failures int       // in a row
	until    time.Time // it rests until then, if there are failures
	trying   bool      // a message is under way that finds out whether it works again
	err      error     // of the last failure in a row
	accepted int64     // messages

	known bool  // the depth was read the last time
	depth int64 // at that reading
	since int64 // messages that were placed here since
}

// rests reports whether messages go elsewhere for now.
func (s *shard) rests(now time.Time) bool {
	return s.failures > 0 && (s.trying || now.Before(s.until))
}

// succeeded records that a request was answered with success.
func (s *shard) succeeded() { s.failures, s.until, s.err = 0, time.Time{}, nil }

// failed records a failure. Those that come while it rests do not count: they belong to requests that began
// earlier, or that had nowhere else to go.
func (s *shard) failed(err error, now time.Time) {
	if s.err = err; now.Before(s.until) {
		return
	}
	s.failures++
	s.until = now.Add(rest(s.failures))
}

// rest returns how long a shard rests after so many failures in a row.
func rest(failures int) time.Duration {
	if failures > 9 { // 100 ms doubled 9 times is more than the maximum
		return maxRest
	}
	return min(firstRest<<(failures-1), maxRest)
}
