package localqueue

import "time"

// Options configures an [Engine]. Nil and the zero value mean the defaults.
type Options struct {
	// DeletingFor is how long the name of a dropped queue stays reserved; meanwhile a create
	// fails with [queue.ErrQueueBeingDeleted]. A negative value frees the name at once.
	// Defaults to 30 s, the minimum that the service documents.
	DeletingFor time.Duration

	// Seed makes message ids and receipts a pure function of the seed, the number of the queue
	// in order of creation, and the number within the queue, so that a test can be repeated.
	// Zero means a random seed, so that ids cannot be guessed. Defaults to 0.
	Seed uint64
}

func (o *Options) deletingFor() time.Duration {
	switch {
	case o == nil || o.DeletingFor == 0:
		return 30 * time.Second
	case o.DeletingFor < 0:
		return 0
	default:
		return o.DeletingFor
	}
}

func (o *Options) seed() uint64 {
	if o == nil {
		return 0
	}
	return o.Seed
}
