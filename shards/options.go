package shards

import (
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/queue"
)

// Options configure a [Listener]. Nil and the zero value mean the defaults.
type Options[T any] struct {
	// Listener are the options of the listener of every shard, OnError and Logger included.
	// Its Concurrency is how many handlers of one shard may run at once, and defaults to the number of
	// slots of the pool. A Seed is mixed with the name of the shard, so that shards do not poll in step.
	// Its Slots must not be set: they come from the pool. Defaults to the defaults of a listener.
	Listener *listener.Options[T]

	// Slots is how many handlers of all shards together may run at once, when there is no Pool. There
	// must be one for each shard at least. Defaults to 64, or to the number of shards if that is more.
	Slots int

	// Pool is the pool whose slots the shards use, so that they share them with other listeners.
	// Every shard is a member. Defaults to a pool of their own with Slots slots.
	Pool *pool.Pool

	// Member is how each shard takes part in the pool. Weight, Reserve and Rank are those of one
	// shard, not of all together; Name defaults to that of the queue. Defaults to the defaults of a
	// member: all shards are alike.
	Member *pool.MemberOptions

	// Settle is how long a shard that is being removed must have been empty before its listener
	// stops. It should be longer than any sender can go on placing messages on it: see
	// [Listener.Remove]. Negative means that it stops when it is first found empty. Defaults to 5 min.
	Settle time.Duration
}

// The defaults.
const (
	defaultSlots  = 64
	defaultSettle = 5 * time.Minute
)

// withDefaults returns the options for so many shards. The caller may reuse its structs.
func (o *Options[T]) withDefaults(shards int) Options[T] {
	c := Options[T]{}
	if o != nil {
		c = *o
	}
	own := listener.Options[T]{}
	if c.Listener != nil {
		own = *c.Listener
	}
	if own.Logger == nil {
		own.Logger = slog.Default()
	}
	c.Listener = &own
	member := pool.MemberOptions{}
	if c.Member != nil {
		member = *c.Member
	}
	c.Member = &member
	if c.Slots == 0 && c.Pool == nil {
		c.Slots = max(defaultSlots, shards)
	}
	if c.Settle == 0 {
		c.Settle = defaultSettle
	}
	return c
}

func (o *Options[T]) check(shards int) error {
	switch {
	case o.Listener.Slots != nil:
		return errors.New("shards: Options.Listener.Slots is set: the slots of shards are those of Options.Pool")
	case o.Pool != nil && o.Slots != 0:
		return errors.New("shards: Options.Slots and Options.Pool are both set: the pool has its slots")
	case o.Pool == nil && o.Slots < shards:
		return fmt.Errorf("shards: %d slots are too few for %d shards: each needs one at least", o.Slots, shards)
	case o.Settle > 0 && o.Settle < time.Microsecond:
		return fmt.Errorf("shards: Options.Settle %d has no unit: write such as %d*time.Second, or a negative one for no wait", o.Settle, o.Settle)
	}
	return nil
}

func (o *Options[T]) pool() *pool.Pool {
	if o.Pool != nil {
		return o.Pool
	}
	return pool.New(&pool.Options{Slots: o.Slots})
}

func (o *Options[T]) member(name queue.Name) *pool.MemberOptions {
	m := *o.Member
	if m.Name == "" {
		m.Name = name.String()
	}
	return &m
}

func (o *Options[T]) of(m *pool.Member, name queue.Name) *listener.Options[T] {
	own := *o.Listener
	own.Slots = m
	if own.Seed != 0 {
		own.Seed = seedOf(own.Seed, name)
	}
	return &own
}

// seedOf returns the seed of a shard. It does not depend on what other shards there are.
func seedOf(seed uint64, name queue.Name) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x/%v", seed, name) // a hash never fails
	return max(h.Sum64(), 1)                   // zero would be a random one
}
