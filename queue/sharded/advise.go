package sharded

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/queue"
)

// DefaultLimit is how many requests a second one queue serves: the service's target for messages of 1 KiB.
const DefaultLimit = 2000

// Load is what queues have to carry.
type Load struct {
	// Rate is how many messages a second are sent, handled and deleted at peak times, by all processes.
	// Defaults to 0.
	Rate float64

	// Batch is how many messages a dequeue brings on average, 1…queue.MaxBatch. 1 is right where a limit
	// counts the messages that a dequeue brings, as that of the embedded server does. Defaults to
	// queue.MaxBatch, a backlog.
	Batch float64

	// Limit is how many requests a second one queue serves. Defaults to DefaultLimit.
	Limit float64
}

// Advise returns how many shards carry the load: each message costs a request to send it, one to delete
// it, and its part of a dequeue, so the shards are at least Rate · (2 + 1/Batch) / Limit, and one. It does
// not count renewals, retries and empty polls, nor that keys are uneven; an account has a limit of its own,
// which ten queues at DefaultLimit reach. A load that is negative or no number is an error, and so is a
// Batch outside its range.
func Advise(l Load) (shards int, err error) {
	if err := l.check(); err != nil {
		return 0, err
	}
	n := l.Rate * (2 + 1/l.Batch) / l.Limit
	if n > math.MaxInt32 {
		return 0, fmt.Errorf("advise on shards: %v messages/s at a limit of %v are more than any number of queues carries", l.Rate, l.Limit)
	}
	// What is a whole number but for rounding is that number.
	return max(1, int(math.Ceil(n*(1-1e-12)))), nil
}

// check sets the defaults and refuses what is no load.
func (l *Load) check() error {
	if l.Batch == 0 {
		l.Batch = queue.MaxBatch
	}
	if l.Limit == 0 {
		l.Limit = DefaultLimit
	}
	// Comparisons with NaN are false.
	switch {
	case !(l.Rate >= 0 && l.Rate <= math.MaxFloat64):
		return fmt.Errorf("advise on shards: a Rate of %v messages/s is none", l.Rate)
	case !(l.Batch >= 1 && l.Batch <= queue.MaxBatch):
		return fmt.Errorf("advise on shards: a Batch of %v messages is outside 1…%d", l.Batch, queue.MaxBatch)
	case !(l.Limit > 0 && l.Limit <= math.MaxFloat64):
		return fmt.Errorf("advise on shards: a Limit of %v requests/s is none", l.Limit)
	}
	return nil
}
