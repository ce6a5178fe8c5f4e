package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// readTimeout bounds what the readings of the depths may add to an Enqueue.
const readTimeout = time.Second

// Depth is the depth of one shard.
type Depth struct {
	Queue queue.Name
	Depth int64 // approximate, as in queue.Properties; 0 if there is an error
	Err   error // why it could not be read; nil if it was
}

// Depths reads the depths of all shards, one request each, at the same time, in the order in which the
// shards were added.
func (q *Queue) Depths(ctx context.Context) []Depth {
	shards := q.all()
	depths := make([]Depth, len(shards))
	_ = each(shards, func(i int, s *shard) error {
		depths[i].Queue = s.name
		p, err := s.queue.Properties(ctx)
		if depths[i].Err = err; err == nil {
			depths[i].Depth = p.Depth
		}
		return nil
	})
	return depths
}

// Properties returns the sum of the depths, and no metadata, because each shard has its own. It costs a
// request for each shard. If some could not be read the error joins theirs, and the sum is that of the
// others.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	var sum int64
	var errs []error
	for _, d := range q.Depths(ctx) {
		if sum += d.Depth; d.Err != nil {
			errs = append(errs, fmt.Errorf("depth of %v: %w", d.Queue, d.Err))
		}
	}
	return queue.Properties{Depth: sum}, errors.Join(errs...)
}

// readWhenDue reads the depths if they are needed and too old. Others that send meanwhile use the old ones.
func (q *Queue) readWhenDue(ctx context.Context) {
	if q.options.Place != LeastDepth || ctx.Err() != nil {
		return
	}
	start := time.Now()
	q.mu.Lock()
	due := q.read.IsZero() || start.Sub(q.read) >= q.options.DepthEvery
	if due {
		q.read = start
	}
	q.mu.Unlock()
	if !due {
		return
	}
	all := ctx
	ctx, cancel := context.WithTimeout(queue.WithRepeats(queue.WithCause(ctx, queue.CauseDepth), 0), readTimeout)
	defer cancel()
	_ = each(q.all(), func(_ int, s *shard) error {
		q.readDepth(ctx, s)
		return nil
	})
	if all.Err() != nil { // it says nothing of the shards
		q.mu.Lock()
		q.read = time.Time{}
		q.mu.Unlock()
	}
}

func (q *Queue) readDepth(ctx context.Context, s *shard) {
	q.mu.Lock()
	before := s.since
	q.mu.Unlock()
	p, err := s.queue.Properties(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.known = err == nil; s.known {
		s.depth, s.since = p.Depth, max(0, s.since-before) // what was placed meanwhile may be in it or not
	}
}

// shallower returns the shard with fewer messages, or the first if that is unknown.
func shallower(a, b *shard) *shard {
	if a.known && b.known && b.depth+b.since < a.depth+a.since {
		return b
	}
	return a
}
