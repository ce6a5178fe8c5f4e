package sharded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/request"
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
	begun time.Time
	try   bool // the shard is suspect, and this message finds out whether it works again
	twice bool // another shard may have the message as well
	free  bool // the message may go to another shard
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
	late := q.lateness()
	before := q.repeats.of(text)
	s := before.shard
	if s == nil || before.leave && !q.bound(to) && s.suspect(now, late) {
		s = q.place(text, to, now, late, before.shard)
	}
	c := chosen{
		shard: s, begun: now, try: s.suspect(now, late),
		twice: before.other || before.shard != nil && before.shard != s,
		free:  !q.bound(to) && len(q.shards) > 1 && q.options.PerTenant != 1,
	}
	s.underway = append(s.underway, now)
	if c.try {
		s.due = now.Add(max(retryEvery, q.share(max(s.held, now.Sub(s.underway[0])))))
	}
	s.since++
	q.placed++
	s.used = q.placed
	return c, nil
}

// share returns how long after the begin of a request that took so long the next one may try its shard, so
// that tries take up about a sixth of the senders. Requires mu.
func (q *Queue) share(took time.Duration) time.Duration {
	senders := 0
	for _, s := range q.shards {
		senders += len(s.underway)
	}
	return 6 * took / time.Duration(max(senders, 1))
}

// bound reports whether the key decides the shard.
func (q *Queue) bound(to destination) bool { return q.options.Place == ByKey && to.key != "" }

// A shard is suspect while a request to it takes so long, and so many times longer than the last one of
// the fastest shard.
const (
	lateAfter = 500 * time.Millisecond
	lateTimes = 10
)

// lateness returns how long a request may take before its shard is suspect. Requires mu.
func (q *Queue) lateness() time.Duration {
	fastest := time.Duration(math.MaxInt64)
	for _, s := range q.shards {
		if s.took > 0 {
			fastest = min(fastest, s.took)
		}
	}
	if fastest > math.MaxInt64/lateTimes { // nothing to compare with
		return math.MaxInt64
	}
	return max(lateAfter, lateTimes*fastest)
}

// place returns the shard for a message. It does not try the shard where the outcome of the message is
// unknown, if there is one, nor for a while a shard whose last failure was of this message: a sender that
// waits longer than the shard rests would fail again and again. Requires mu.
func (q *Queue) place(text string, to destination, now time.Time, late time.Duration, unknown *shard) *shard {
	shards := q.candidates(to)
	if q.bound(to) {
		return winners(shards, to.key, 1)[0]
	}
	n := 0 // shards that are not suspect, which come first
	for i, s := range shards {
		switch {
		case !s.suspect(now, late):
			shards[n], shards[i] = s, shards[n]
			n++
		case s.due.IsZero():
			s.due = now.Add(retryEvery)
		case now.Before(s.due), s == unknown, s.failures > 0 && s.refused == text && now.Sub(s.due) < retryEvery:
			// it is not tried
		default:
			return s
		}
	}
	if n == 0 { // they are chosen as if none were
		n = len(shards)
	}
	if shards = shards[:n]; n == 1 {
		return shards[0]
	}
	if q.options.Place == Random || q.options.Place == LeastDepth {
		i, j := q.random.IntN(n), q.random.IntN(n-1)
		if j >= i {
			j++
		}
		return better(shards[i], shards[j], q.options.Place == LeastDepth)
	}
	best := shards[0]
	for _, s := range shards[1:] {
		if busier, other := len(best.underway), len(s.underway); other < busier || other == busier && s.used < best.used {
			best = s
		}
	}
	return best
}

// better returns the better of two shards: the one with far fewer requests under way, or else the one
// with fewer messages if that counts.
func better(a, b *shard, byDepth bool) *shard {
	n, m := len(a.underway), len(b.underway)
	switch {
	case m > 2*n+1:
		return a
	case n > 2*m+1, !byDepth && m < n:
		return b
	case byDepth:
		return shallower(a, b)
	}
	return a
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

// ended records the outcome of a request.
func (q *Queue) ended(ctx context.Context, c chosen, text string, err error) {
	now := time.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	s := c.shard
	share := q.share(now.Sub(c.begun))
	i := slices.Index(s.underway, c.begun)
	s.underway = slices.Delete(s.underway, i, i+1)
	switch {
	case err == nil:
		s.accepted++
		s.failures, s.err, s.due, s.held, s.refused = 0, nil, time.Time{}, 0, ""
		if c.begun.After(s.answered) || s.answered.IsZero() {
			s.answered, s.took = c.begun, max(now.Sub(c.begun), 1)
		}
		q.repeats.forget(text)
	case unwell(ctx, err):
		s.refused = text
		s.failed(err, now, c, share)
	}
	if errors.Is(err, queue.ErrOutcomeUnknown) {
		q.repeats.remember(text, s, now.Sub(c.begun) > q.lateness())
	}
	if len(s.underway) == 0 && s.removed {
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

// The strategies. Suspect shards are left out by all but ByKey: see the package comment.
const (
	// RoundRobin takes the shard with the fewest requests under way, and of those the one that was chosen
	// longest ago.
	RoundRobin Strategy = iota

	// Random takes any two shards, and of them the one with fewer requests under way.
	Random

	// ByKey takes a shard by EnqueueOptions.Key, the same for all messages with that key and in all
	// processes. A shard that is added takes its part of the keys from all others, 1/k of them if there
	// are k with it; all other keys stay where they are. The keys of a shard that is removed are spread
	// over the others. A message without a key is placed by RoundRobin.
	ByKey

	// LeastDepth takes two shards at random, and of them the one with fewer messages, or with less than
	// half as many requests under way. It counts the depth at the last reading and what this Queue has
	// placed since. The least of all would be flooded by producers that all know the same reading. If one
	// of the two has a depth that could not be read, the first of them is taken, so such a shard gets
	// about its share.
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
	ctx, cancel := context.WithTimeout(request.WithRepeats(request.WithCause(ctx, request.CauseDepth), 0), readTimeout)
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
	l.Batch = cmp.Or(l.Batch, queue.MaxBatch)
	l.Limit = cmp.Or(l.Limit, DefaultLimit)
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
