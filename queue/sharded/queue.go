package sharded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// defaultDepthEvery is how old a reading of the depths may be.
const defaultDepthEvery = 10 * time.Second

// Options configure a [Queue]. Nil and the zero value mean the defaults.
type Options struct {
	// Name is what the Queue calls itself, in errors and to interceptors of producers. Defaults to what
	// the names of the first shards have in common: acme/orders for acme/orders-0 and acme/orders-1.
	Name queue.Name

	// Place says how the shard of a message is chosen. Defaults to RoundRobin.
	Place Strategy

	// PerTenant gives each tenant this many of the shards, chosen by its name, and Place chooses among
	// them: a tenant that floods its shards slows only those that share one of them. Negative is an
	// error; as many as there are shards, or more, is all of them. Defaults to 0: no tenants.
	PerTenant int

	// Tenant returns the tenant of a message by its EnqueueOptions.Key. It must always return the same
	// for the same key, and be safe for concurrent use. Messages with an empty tenant are one tenant.
	// Defaults to the key itself, with which ByKey uses one shard of a tenant only.
	Tenant func(key string) string

	// DepthEvery is how old a reading of the depths may be with LeastDepth, at least a second. One
	// Enqueue in this time reads them, one request for each shard, and takes longer by it, by a second at
	// most. Readings cost 86,400 · shards a day at one a second, 8,640 · shards at the default, for every
	// Queue that is in use all the time; where nothing is sent nothing is read. Defaults to 10 s.
	DepthEvery time.Duration

	// Seed makes the choices of Random and LeastDepth repeatable, and the shard with which RoundRobin
	// begins. Defaults to a random one.
	Seed uint64
}

// Queue is several queues that take messages as one. Make one with [New]; the zero value has no shards and
// takes no messages. It is safe for concurrent use.
type Queue struct {
	options Options

	mu      sync.Mutex
	shards  []*shard   // guarded by mu, and so is what they hold
	scratch []*shard   // for choosing without an allocation; guarded by mu
	random  *rand.Rand // guarded by mu
	placed  int64      // how many messages were placed; guarded by mu
	repeats repeats    // guarded by mu
	read    time.Time  // when the depths were read; guarded by mu
}

var _ queue.Sender = (*Queue)(nil)

// New returns a Queue over the shards, whose names must differ. It sends nothing. With [ByKey], and with
// tenants, the place of a message follows from the names of the shards alone: all producers must use the
// same ones, in whatever order.
func New(shards []queue.Queue, o *Options) (*Queue, error) {
	q := &Queue{}
	if o != nil {
		q.options = *o
	}
	o = &q.options
	switch {
	case len(shards) == 0:
		return nil, errors.New("sharded.New: there are no shards")
	case o.Place > LeastDepth:
		return nil, fmt.Errorf("sharded.New: Place is %v, which does not exist", o.Place)
	case o.PerTenant < 0:
		return nil, fmt.Errorf("sharded.New: PerTenant %d is negative", o.PerTenant)
	case o.Tenant != nil && o.PerTenant == 0:
		return nil, errors.New("sharded.New: Tenant has no effect without PerTenant: say how many shards a tenant gets")
	case o.DepthEvery != 0 && o.DepthEvery < time.Second:
		return nil, fmt.Errorf("sharded.New: DepthEvery %v is less than a second", o.DepthEvery)
	}
	o.DepthEvery = cmp.Or(o.DepthEvery, defaultDepthEvery)
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	q.random = rand.New(rand.NewPCG(o.Seed, 0)) //nolint:gosec // no secret
	for _, one := range shards {
		if err := q.Add(one); err != nil {
			return nil, fmt.Errorf("sharded.New: %w", err)
		}
	}
	// Short-lived producers would otherwise all begin with the same shard.
	q.random.Shuffle(len(q.shards), func(i, j int) {
		q.shards[i].used, q.shards[j].used = q.shards[j].used, q.shards[i].used
	})
	if o.Name == (queue.Name{}) {
		o.Name = commonName(shards)
	}
	return q, nil
}

func commonName(shards []queue.Queue) queue.Name {
	first := shards[0].Name()
	common := first
	for _, one := range shards[1:] {
		name := one.Name()
		if name.Account != common.Account {
			common.Account = ""
		}
		for !strings.HasPrefix(name.Queue, common.Queue) {
			common.Queue = common.Queue[:len(common.Queue)-1]
		}
	}
	if common.Queue = strings.TrimRight(common.Queue, "-"); common.Queue == "" {
		return first
	}
	return common
}

// Name implements [queue.Sender]: see Options.Name.
func (q *Queue) Name() queue.Name { return q.options.Name }

// Enqueue adds the message to one of the shards, with one request, and says in Message.Queue to which. An
// error is that of the shard, and names it. [queue.Transient] errors are worth another call with the same
// text: after [queue.ErrOutcomeUnknown] it goes to the same shard, unless that did not answer in time, and
// after the others to another one, unless the shard follows from the key. Message.MaybeTwice of the result
// says that an earlier shard may have the message too. With [LeastDepth] it may read depths before.
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	to := destination{}
	if o != nil {
		to.key = o.Key
	}
	if q.options.PerTenant > 0 {
		if to.tenant = to.key; q.options.Tenant != nil {
			to.tenant = q.options.Tenant(to.key)
		}
	}
	q.readWhenDue(ctx)
	c, err := q.choose(text, to)
	if err != nil {
		return queue.Message{}, err
	}
	request := ctx
	if c.free {
		request = waiting.WithHandBack(ctx)
	}
	if m, err = c.shard.queue.Enqueue(request, text, o); err != nil {
		err = named(err, c.shard.name)
	}
	q.ended(ctx, c, text, err)
	if err != nil {
		return queue.Message{}, err
	}
	if m.Queue == (queue.Name{}) { // a shard may be several queues itself
		m.Queue = c.shard.name
	}
	m.MaybeTwice = m.MaybeTwice || c.twice
	return m, nil
}

// named returns the error with the name of the shard, unless it has one.
func named(err error, name queue.Name) error {
	var e *queue.Error
	if errors.As(err, &e) && e.Queue != (queue.Name{}) {
		return err
	}
	return driver.Explain(err, "enqueue", name, "")
}

// Create creates all shards with the same metadata, one request each, at the same time. The error joins
// those of the shards.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	return errors.Join(each(q.all(), func(_ int, s *shard) error { return s.queue.Create(ctx, metadata) })...)
}

// each calls f for all shards at the same time, with their indexes, and returns the errors in their order.
func each(shards []*shard, f func(i int, s *shard) error) []error {
	errs := make([]error, len(shards))
	var running sync.WaitGroup
	for i, s := range shards {
		running.Go(func() { errs[i] = f(i, s) })
	}
	running.Wait()
	return errs
}

// maxRepeats is how many messages of unknown outcome are remembered at least.
const maxRepeats = 1024

// repeats remembers where messages were sent whose outcome is unknown, by the hash of their texts. Two
// generations bound it: when the younger one is full it takes the place of the older one. Two texts with
// one hash cost no more than a place that was not chosen by the strategy.
type repeats struct {
	seed         maphash.Seed
	young, older map[uint64]repeat
}

// repeat is where a text was sent with an unknown outcome.
type repeat struct {
	shard *shard // the last one; nil for nowhere
	leave bool   // it may go elsewhere while the shard is suspect: there was no response in time, or twice none
	other bool   // it may be in another shard too
}

// of returns where a text was sent with an unknown outcome.
func (r *repeats) of(text string) repeat {
	if len(r.young)+len(r.older) == 0 { // as ever, but in an outage
		return repeat{}
	}
	h := maphash.String(r.seed, text)
	one := cmp.Or(r.young[h], r.older[h])
	if one.shard != nil && one.shard.removed {
		return repeat{other: true}
	}
	return one
}

// remember notes that a text may be in a shard.
func (r *repeats) remember(text string, s *shard, late bool) {
	if r.young == nil {
		r.seed, r.young = maphash.MakeSeed(), make(map[uint64]repeat)
	}
	before := r.of(text)
	if len(r.young) >= maxRepeats {
		r.older, r.young = r.young, make(map[uint64]repeat)
	}
	r.young[maphash.String(r.seed, text)] = repeat{s, late || before.shard == s, before.other || before.shard != nil && before.shard != s}
}

// forget ends the memory of a text that was accepted.
func (r *repeats) forget(text string) {
	if len(r.young)+len(r.older) == 0 {
		return
	}
	h := maphash.String(r.seed, text)
	delete(r.young, h)
	delete(r.older, h)
}
