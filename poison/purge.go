package poison

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// PurgeOptions says what [Purge] deletes and how. Nil and the zero value mean everything, one
// message after the other.
type PurgeOptions struct {
	// Filter chooses messages. Defaults to all, foreign ones included.
	Filter Filter

	// DryRun deletes nothing, and counts as purged what would be. It reads the queue as a purge
	// does, with the same cost for what is given back. Defaults to false.
	DryRun bool

	// Rate is how many messages a second are purged at most. Defaults to 0, no bound. Negative
	// is an error.
	Rate float64

	// Parallel is how many messages are worked on at a time. Defaults to 1. Negative is an error.
	Parallel int

	// Max is how many messages are purged at most. Defaults to 0, all. Negative is an error.
	Max int

	// Lease is how long a page of messages is hidden while it is worked on, in whole seconds, at
	// least 2 s. A process that is killed leaves its page hidden so long. Defaults to 30 s.
	Lease time.Duration

	// Progress is called after each page and each message that was worked on, never by two
	// goroutines at a time. It must not wait. Defaults to nil, no calls.
	Progress func(Report)
}

// Purge deletes the messages of a poison queue that the filter chooses, for good. Messages that
// come while it runs are left. [Redrive] says how the queue is read, what that costs, and what the
// errors are. A body that is stored elsewhere is not deleted.
func Purge(ctx context.Context, q queue.Queue, o *PurgeOptions) (Report, error) {
	if o == nil {
		o = new(PurgeOptions)
	}
	s := &sweep{
		queue: q, filter: o.Filter, dryRun: o.DryRun, rate: o.Rate, parallel: o.Parallel,
		max: o.Max, lease: o.Lease, progress: o.Progress, done: Counts{Purged: 1}, cause: queue.CausePurge,
		plan: func(*Entry, time.Time) (*send, error) { return nil, nil },
	}
	return s.run(ctx)
}
