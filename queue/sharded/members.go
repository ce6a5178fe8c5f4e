package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/queue"
)

// Add adds a shard, which takes messages from now on. It sends nothing: the queue must exist, and somebody
// must listen to it. A shard whose name the Queue has is an error, and so is nil.
func (q *Queue) Add(one queue.Queue) error {
	if one == nil {
		return errors.New("add a shard: it is nil")
	}
	name := one.Name()
	s := &shard{queue: one, name: name, hash: hash(name.String())}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.random == nil {
		return errors.New("add a shard: the queue was not made with sharded.New")
	}
	if q.index(name) >= 0 {
		return fmt.Errorf("add a shard: there are two with the name %v", name)
	}
	s.used = q.placed - int64(len(q.shards)) // the next for RoundRobin, and then in turn
	q.shards = append(q.shards, s)
	return nil
}

// Remove removes a shard: no message is sent to it any more, not even one whose outcome there is unknown,
// which is sent again elsewhere. It waits until no request to it is under way. What is read from the queue
// afterwards until it is empty is all that this Queue has sent, unless the network delivers a request
// later whose response was given up. If ctx ends before, Remove returns the cause; the shard is removed
// all the same. A name that the Queue does not have, and its last shard,
// are errors that change nothing.
func (q *Queue) Remove(ctx context.Context, name queue.Name) error {
	s, err := q.remove(name)
	if err != nil {
		return fmt.Errorf("remove the shard %v: %w", name, err)
	}
	select {
	case <-s.idle:
		return nil
	default:
	}
	select {
	case <-s.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("remove the shard %v: it takes no further messages, but some are still under way to it: %w", name, context.Cause(ctx))
	}
}

func (q *Queue) remove(name queue.Name) (*shard, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := q.index(name)
	switch {
	case i < 0:
		return nil, errors.New("it is none of the shards")
	case len(q.shards) == 1:
		return nil, errors.New("it is the last one: add another shard before")
	}
	s := q.shards[i]
	q.shards = slices.Delete(q.shards, i, i+1)
	clear(q.scratch[:cap(q.scratch)]) // it may hold the shard
	s.removed, s.idle = true, make(chan struct{})
	if s.underway == 0 {
		close(s.idle)
	}
	return s, nil
}

// index returns where the shard with a name is, or -1. Requires mu.
func (q *Queue) index(name queue.Name) int {
	return slices.IndexFunc(q.shards, func(s *shard) bool { return s.name == name })
}

// all returns the shards in the order in which they were added.
func (q *Queue) all() []*shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.shards)
}

// Shards returns the shards, in the order in which they were added.
func (q *Queue) Shards() []queue.Queue { return queues(q.all()) }

// ShardsOf returns the shards to which messages with this key may go: with tenants those of its tenant,
// the same for all of them and in all processes; with [ByKey] one; otherwise all. Shards that rest count.
func (q *Queue) ShardsOf(key string) []queue.Queue {
	to := destination{key: key, tenant: key}
	if q.options.Tenant != nil {
		to.tenant = q.options.Tenant(key)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	shards := q.candidates(to)
	if q.options.Place == ByKey && key != "" && len(shards) > 0 {
		shards = winners(shards, key, 1)
	}
	return queues(shards)
}

func queues(shards []*shard) []queue.Queue {
	all := make([]queue.Queue, len(shards))
	for i, s := range shards {
		all[i] = s.queue
	}
	return all
}

// Lookup returns the queue with this name, such as that of a Message.Queue: a shard, or a queue that a
// shard finds by its own Lookup. A shard that was removed is not found.
func (q *Queue) Lookup(name queue.Name) (queue.Queue, bool) {
	for _, s := range q.all() {
		if s.name == name {
			return s.queue, true
		}
	}
	for _, s := range q.all() {
		if several, ok := s.queue.(interface {
			Lookup(name queue.Name) (queue.Queue, bool)
		}); ok {
			if found, ok := several.Lookup(name); ok {
				return found, true
			}
		}
	}
	return nil, false
}
