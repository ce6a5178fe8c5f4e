package sharded

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
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
	if len(s.underway) == 0 {
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

// How long a shard rests after its first failure in a row, and how often a message tries one that stays
// suspect.
const (
	firstRest  = 100 * time.Millisecond
	retryEvery = 4 * time.Second
)

// shard is one of the queues. What follows its hash is guarded by Queue.mu.
type shard struct {
	queue queue.Queue
	name  queue.Name
	hash  uint64 // of the name

	used     int64         // the number of the message that was placed here last
	underway []time.Time   // when the requests began that have not returned, the oldest first
	removed  bool          // it is not among the shards any more
	idle     chan struct{} // closed when it is removed and nothing is under way

	failures int           // in a row
	err      error         // of the last failure in a row
	refused  string        // the text of the message that failed last; it counts while failures > 0
	due      time.Time     // while it is suspect no message goes there before, and one then
	held     time.Duration // how long the last request took that failed
	accepted int64         // messages

	answered time.Time     // when the youngest request began that was accepted; zero for none
	took     time.Duration // the time that took; 0 for none

	known bool  // the depth was read the last time
	depth int64 // at that reading
	since int64 // messages that were placed here since
}

// suspect reports whether a message had better go elsewhere: the last one failed, or its answers are late.
// Requests before one that was accepted say nothing any more.
func (s *shard) suspect(now time.Time, late time.Duration) bool {
	if s.failures > 0 || s.took > late {
		return true
	}
	for _, begun := range s.underway {
		if begun.After(s.answered) {
			return now.Sub(begun) > late
		}
	}
	return false
}

// failed records the failure of a request. Those that come while the shard rests do not count, but for
// that of a try: they belong to requests that began earlier, or that had nowhere else to go.
func (s *shard) failed(err error, now time.Time, c chosen, share time.Duration) {
	if s.err = err; !c.try && s.failures > 0 && now.Before(s.due) {
		return
	}
	s.held = now.Sub(c.begun)
	due := now.Add(max(waiting.Doubled(firstRest, s.failures, retryEvery), share-s.held))
	if len(s.underway) == 0 || due.After(s.due) { // or else another try is under way
		s.due = due
	}
	s.failures++
}

// State is what a [Queue] knows of one shard without asking it.
type State struct {
	Queue    queue.Name `json:"queue"`
	Accepted int64      `json:"accepted"` // messages of this Queue that the shard has accepted

	// RestsUntil is when the shard is tried again. The zero time means that it takes part; a time that has
	// passed that the next message tries it, or that one is doing so.
	RestsUntil time.Time `json:"restsUntil,omitzero"`

	// Err is the last failure for which it rests, nil if it takes part or is only late.
	Err error `json:"-"`
}

// States returns the states of the shards, in the order in which they were added. It sends no request.
func (q *Queue) States() []State {
	q.mu.Lock()
	defer q.mu.Unlock()
	states := make([]State, len(q.shards))
	for i, s := range q.shards {
		states[i] = State{Queue: s.name, Accepted: s.accepted, RestsUntil: s.due, Err: s.err}
	}
	return states
}

// Throttling is regular when this part of the requests was refused, in so many observations in a row.
const (
	regularShare = 0.01
	regularTimes = 3
)

// Counts are what a process has counted of the requests to a queue since some beginning. Package metered
// counts them.
type Counts struct {
	Requests  int64 // all of them
	Throttled int64 // those that were refused because the service was busy
	Messages  int64 // that were sent, those that were refused too, but each once however often it was repeated
}

// MonitorOptions configure a [Monitor]. Nil and the zero value mean the defaults.
type MonitorOptions struct {
	// Batch and Limit are those of the Load. Default as there.
	Batch, Limit float64

	// Fleet is how many processes send as much as the one whose counts are observed. Defaults to 1.
	Fleet int
}

// Monitor finds out whether a queue is throttled regularly. Now and then is no reason for anything, because
// everything that sends requests waits and repeats them; regularly is the sign that one queue is not
// enough. Make one with [NewMonitor]. It is not safe for concurrent use.
type Monitor struct {
	_ [0]sync.Mutex // go vet reports copies

	load  Load
	fleet float64

	at    time.Time // of the last observation
	last  Counts
	times int     // observations in a row that were throttled
	peak  float64 // the highest rate of these
}

// NewMonitor returns a Monitor that has observed nothing.
func NewMonitor(o *MonitorOptions) (*Monitor, error) {
	w := &Monitor{fleet: 1}
	if o != nil {
		w.load.Batch, w.load.Limit = o.Batch, o.Limit
		if o.Fleet < 0 {
			return nil, fmt.Errorf("watch a queue: Fleet %d is negative", o.Fleet)
		}
		w.fleet = max(1, float64(o.Fleet))
	}
	if err := w.load.check(); err != nil {
		return nil, fmt.Errorf("watch a queue: %w", err)
	}
	return w, nil
}

// Advice is what to do about throttling.
type Advice struct {
	// Rate is how many messages a second the fleet sends, the highest of the last observations. Senders
	// that wait for each message before the next are slowed down by throttling, and would send more.
	Rate float64

	// Throttled is the part of the requests that were refused since the observation before, 0…1.
	Throttled float64

	// Shards is how many queues carry the rate: see Advise. If there are as many already, the throttling
	// has another reason: the limit of the account, a key with most of the messages, a smaller Batch, or
	// requests that were not counted.
	Shards int
}

// String returns the advice in a line for a log.
func (a Advice) String() string {
	return fmt.Sprintf("%.1f %% of the requests are throttled: %.0f messages/s call for %d shards", 100*a.Throttled, a.Rate, a.Shards)
}

// Observe takes the counts at a time, best once a minute. It reports true, and its advice, if the queue is
// throttled regularly: in each of the last three intervals between observations 1 % of the requests or more
// were. Counts that are lower than the last ones, such as those of a new meter, begin anew.
func (w *Monitor) Observe(at time.Time, c Counts) (Advice, bool) {
	since, took := c.minus(w.last), at.Sub(w.at)
	first := w.at.IsZero()
	w.at, w.last = at, c
	if first || took <= 0 || since.Requests < 0 || since.Throttled < 0 || since.Messages < 0 {
		w.times, w.peak = 0, 0
		return Advice{}, false
	}
	share := float64(since.Throttled) / float64(max(1, since.Requests))
	if share < regularShare {
		w.times, w.peak = 0, 0
		return Advice{}, false
	}
	w.times++
	w.peak = max(w.peak, w.fleet*float64(since.Messages)/took.Seconds())
	if w.times < regularTimes {
		return Advice{}, false
	}
	load := w.load
	load.Rate = w.peak
	shards, err := Advise(load)
	return Advice{Rate: w.peak, Throttled: share, Shards: shards}, err == nil
}

func (c Counts) minus(d Counts) Counts {
	return Counts{Requests: c.Requests - d.Requests, Throttled: c.Throttled - d.Throttled, Messages: c.Messages - d.Messages}
}
