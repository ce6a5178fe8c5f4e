package sharded

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// destination is what a message is placed by.
type destination struct {
	key    string
	tenant string // with Options.PerTenant
}

// chosen is the shard of a message whose request is under way.
type chosen struct {
	shard *shard
	try   bool // the shard rested, and this message finds out whether it works again
}

var errNoShards error = &queue.Error{Op: "enqueue", Kind: queue.ErrInvalid, Detail: "there are no shards", Hint: "make the queue with sharded.New"}

// choose chooses the shard of a message. The caller calls ended afterwards.
func (q *Queue) choose(text string, to destination) (chosen, error) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.shards) == 0 {
		return chosen{}, errNoShards
	}
	s := q.repeats.of(text)
	if s == nil {
		s = q.place(to, now)
	}
	c := chosen{shard: s, try: s.failures > 0 && s.probe.Begin(now)}
	s.underway++
	s.since++
	q.placed++
	s.used = q.placed
	return c, nil
}

// place returns the shard for a message that was not sent before. Requires mu.
func (q *Queue) place(to destination, now time.Time) *shard {
	shards := q.candidates(to)
	if q.options.Place == ByKey && to.key != "" {
		return winners(shards, to.key, 1)[0]
	}
	shards = awake(shards, now)
	switch n := len(shards); {
	case n == 1:
		return shards[0]
	case q.options.Place == Random:
		return shards[q.random.IntN(n)]
	case q.options.Place == LeastDepth:
		i, j := q.random.IntN(n), q.random.IntN(n-1)
		if j >= i {
			j++
		}
		return shallower(shards[i], shards[j])
	}
	longest := shards[0]
	for _, s := range shards[1:] {
		if s.used < longest.used {
			longest = s
		}
	}
	return longest
}

// candidates returns the shards to which a message may go, in a slice for the caller to reorder until it
// lets go of mu. Requires mu.
func (q *Queue) candidates(to destination) []*shard {
	q.scratch = append(q.scratch[:0], q.shards...)
	if n := q.options.PerTenant; n > 0 && n < len(q.scratch) {
		return winners(q.scratch, to.tenant, n)
	}
	return q.scratch
}

// awake moves the shards that do not rest to the front and returns them, or all if all rest.
func awake(shards []*shard, now time.Time) []*shard {
	n := 0
	for i, s := range shards {
		if !s.rests(now) {
			shards[n], shards[i] = s, shards[n]
			n++
		}
	}
	if n == 0 {
		return shards
	}
	return shards[:n]
}

// ended records the outcome of a request.
func (q *Queue) ended(ctx context.Context, c chosen, text string, err error) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := c.shard
	if c.try {
		s.probe.End()
	}
	switch {
	case err == nil:
		s.accepted++
		s.succeeded()
		q.repeats.forget(text)
	case unwell(ctx, err):
		s.failed(err, now)
	}
	if errors.Is(err, queue.ErrOutcomeUnknown) {
		q.repeats.remember(text, s)
	}
	if s.underway--; s.underway == 0 && s.removed {
		close(s.idle)
	}
}

// unwell reports whether an error says that the shard had better be left alone for a while. A queue that
// is missing, and a refused access, are mistakes that must not be hidden by the other shards.
func unwell(ctx context.Context, err error) bool {
	if errors.Is(ctx.Err(), context.Canceled) {
		return false // by the caller
	}
	return queue.Transient(err) || errors.Is(err, queue.ErrQueueBeingDeleted)
}

// Strategy is how a [Queue] chooses the shard of a message.
type Strategy uint8

// The strategies. Shards that rest are left out by all but ByKey.
const (
	// RoundRobin takes the shard that was chosen longest ago.
	RoundRobin Strategy = iota

	// Random takes any shard.
	Random

	// ByKey takes a shard by EnqueueOptions.Key, the same for all messages with that key and in all
	// processes. A shard that is added takes its part of the keys from all others, 1/k of them if there
	// are k with it; all other keys stay where they are. The keys of a shard that is removed are spread
	// over the others. A message without a key is placed by RoundRobin.
	ByKey

	// LeastDepth takes two shards at random, and of them the one with fewer messages: the depth at the
	// last reading and what this Queue has placed since. The least of all would be flooded by producers
	// that all know the same reading. If one of the two has a depth that could not be read, the first of
	// them is taken, so such a shard gets about its share.
	LeastDepth
)

var strategyNames = [...]string{RoundRobin: "round robin", Random: "random", ByKey: "by key", LeastDepth: "least depth"}

// String returns the name of the strategy, such as "round robin".
func (s Strategy) String() string {
	if int(s) >= len(strategyNames) {
		return fmt.Sprintf("Strategy(%d)", int(s))
	}
	return strategyNames[s]
}

// Rendezvous hashing: a key gives each shard a score, and the highest scores win. A shard that is added
// changes no other's score, so a key moves only if the new one wins it. All producers must agree, so the
// functions must never change.

// hash returns the FNV-1a hash of a text, mixed.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return mix(h)
}

// mix spreads every bit over all of them; it is the finalizer of MurmurHash3, a permutation.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// winners moves the n shards with the highest scores for a key to the front, the first one foremost, and
// returns them. There are n shards at least.
func winners(shards []*shard, key string, n int) []*shard {
	h := hash(key)
	for i := range n {
		best, score := i, mix(h^shards[i].hash)
		for j := i + 1; j < len(shards); j++ {
			if s := mix(h ^ shards[j].hash); s > score {
				best, score = j, s
			}
		}
		shards[i], shards[best] = shards[best], shards[i]
	}
	return shards[:n]
}
