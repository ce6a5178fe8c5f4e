package simulation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// shardsPlan is a world whose queue is several, as one. The zero value is one queue.
type shardsPlan struct {
	n     int // of queues; 0 if there is one
	place sharded.Strategy
	added time.Duration // when the last of them is added; 0 if it is there from the start
}

func (s shardsPlan) on() bool { return s.n > 0 }

// drawShards draws the shards of a world. What affects its one queue as a whole, or belongs to a single
// listener, is left to other worlds.
func (p *plan) drawShards() {
	d := p.dice
	if p.wakes.on || p.pauses.on || p.pairing.on || p.pool.on() || p.drop > 0 || !d.chance(0.2, "shards") {
		return
	}
	p.shards = shardsPlan{
		n:     d.number(2, 4, "shards", "n"),
		place: pick(d, []sharded.Strategy{sharded.RoundRobin, sharded.Random, sharded.ByKey, sharded.ByKey, sharded.LeastDepth}, "shards", "place"),
	}
	if d.chance(0.4, "shards", "added") {
		p.shards.added = d.within(time.Second, p.horizon*2/3, "shards", "added at")
	}
	if !p.faultless && d.chance(0.4, "shards", "ill") {
		p.incidents = append(p.incidents, p.illShard())
	}
	for i := range p.workers {
		w := &p.workers[i]
		w.concurrency = max(w.concurrency, p.shards.n)
		w.changes = nil
	}
}

// illShard draws what happens to one shard, and to no other: it is away, throttles, is slow, or answers nobody.
func (p *plan) illShard() incident {
	d := p.dice
	t := incident{from: d.within(0, p.horizon*2/3, "ill shard", "from"), long: d.within(10*time.Second, 4*time.Minute, "ill shard", "long")}
	t.long = min(t.long, p.horizon-t.from)
	t.queue = jobs.Queue + p.shards.suffixes()[d.number(0, p.shards.n-1, "ill shard", "which")]
	t.faults = everything(pick(d, []faultqueue.Rates{
		{Unavailable: 0.7, LostRequest: 0.3}, {Throttled: 1}, {Slow: 1}, {LostRequest: 0.7, LostResponse: 0.2, Late: 0.1},
	}, "ill shard", "how"))
	return t
}

// suffixes returns what the name of each queue has after that of the first.
func (s shardsPlan) suffixes() []string {
	all := []string{""}
	for i := 1; i < s.n; i++ {
		all = append(all, "-"+str(i))
	}
	return all
}

// fewest is how many queues there are at first.
func (s shardsPlan) fewest() int {
	if s.added > 0 {
		return s.n - 1
	}
	return max(s.n, 1)
}

// members returns the queues that there are now, over this wire, and a function that has the last one added in
// time. Listeners add it a moment before producers.
func (w *world) members(wire queue.Queue, over func(queue.Queue) queue.Queue, moment time.Duration) (now []queue.Queue, grow func(add func(queue.Queue))) {
	s := w.plan.shards
	for _, suffix := range s.suffixes() {
		now = append(now, over(shardOf(wire, suffix)))
	}
	wait := s.added + moment - w.now()
	if s.added == 0 || wait <= 0 {
		return now, func(func(queue.Queue)) {}
	}
	last := now[s.n-1]
	return now[:s.n-1], func(add func(queue.Queue)) { time.AfterFunc(wait, func() { add(last) }) }
}

// shardOf returns the queue with the suffix.
func shardOf(q queue.Queue, suffix string) queue.Queue {
	if suffix == "" {
		return q
	}
	return q.Sibling(suffix)
}

// mains returns the queues of the world, without faults.
func (w *world) mains() (all []queue.Queue) {
	for _, suffix := range w.plan.shards.suffixes() {
		all = append(all, shardOf(w.engine.Queue(jobs), suffix))
	}
	return all
}

// spread returns where a producer sends to over this wire: its queue, or all shards.
func (w *world) spread(wire queue.Queue, who string) queue.Sender {
	s := w.plan.shards
	if !s.on() {
		return w.breakage.sending(wire)
	}
	all, grow := w.members(wire, w.breakage.sending, time.Millisecond)
	q, err := sharded.New(all, &sharded.Options{Place: w.breakage.place(s.place), Seed: 1 + uint64(w.plan.dice.unit("shards", who)*(1<<53))})
	if err != nil {
		panic(err)
	}
	grow(func(last queue.Queue) {
		if err := q.Add(last); err != nil {
			w.addViolation("a producer adds a shard: %v", err)
		}
	})
	return w.breakage.spread(q)
}

// running is the listener of a process.
type running interface {
	Run(ctx context.Context) error
	Halt()
	Pause()
	Resume()
	Configure(s listener.Settings) error
	State() listener.State
}

// listen returns the listener of a process.
func (p *process) listen() running {
	h, s, o := p.oneAtATime(p.world.breakage.handler(p.handle)), p.world.plan.shards, p.options()
	if !s.on() {
		return p.listenTo(p.queue(p.wire), h, o)
	}
	slots := o.Concurrency
	o.Concurrency = 0
	all, grow := p.world.members(p.wire, p.queue, 0)
	l := must(shards.New(all, h, &shards.Options[job]{Listener: o, Slots: slots}))
	grow(func(last queue.Queue) {
		if err := l.Add(last); err != nil && !slices.Contains([]listener.Phase{listener.Draining, listener.Stopped}, l.State().Phase) {
			p.world.addViolation("%s adds a shard: %v", p.plan.name, err)
		}
	})
	return overShards{l}
}

// overShards is a listener over all shards.
type overShards struct{ *shards.Listener[job] }

func (overShards) Configure(listener.Settings) error {
	return errors.New("the settings of shards cannot be changed")
}

func (l overShards) State() listener.State { return l.Listener.State().Total }

// abandonedIn returns the messages that an error of Run says are abandoned; of shards each has its own.
func abandonedIn(err error) (all []queue.ID) {
	if several, is := err.(interface{ Unwrap() []error }); is {
		for _, one := range several.Unwrap() {
			all = append(all, abandonedIn(one)...)
		}
		return all
	}
	if gone := (*dispatcher.AbandonedError)(nil); errors.As(err, &gone) {
		all = gone.Messages
	}
	return all
}

// checkPlace checks that messages with one key are all in one shard, if they are placed by key, or in the one that
// was added later.
func (b *ledger) checkPlace(e entry) {
	s := b.world.plan.shards
	key := b.world.jobs[b.world.texts[e.text]].key
	if !s.on() || s.place != sharded.ByKey || key == "" {
		return
	}
	if s.added > 0 && strings.HasSuffix(e.queue, s.suffixes()[s.n-1]) {
		return
	}
	if other := b.places[key]; other != "" && other != e.queue {
		b.addViolation(e, "a message with %q is in %s, and an earlier one in %s", key, e.queue, other)
	}
	b.places[key] = e.queue
}

// closeShards checks that a sender was told when two shards may have its message.
func (b *ledger) closeShards() {
	if !b.world.plan.shards.on() {
		return
	}
	first, spread := make(map[string]string), make(map[string]bool)
	for _, e := range b.world.history.entries {
		if e.kind == accepted && e.who == "producer" {
			if q := first[e.text]; q != "" && q != e.queue {
				spread[e.text] = true
			}
			first[e.text] = e.queue
		}
	}
	for _, e := range b.world.history.entries {
		if e.kind == acked && spread[e.text] && e.outcome != maybeTwice {
			b.addViolation(e, "two shards have a message, and its sender was not told")
		}
	}
}

// isPoison reports whether a queue has poison, by its suffix.
func isPoison(suffix string) bool { return strings.HasSuffix(suffix, poison.Suffix) }

// sharedBy returns how many handlers a worker can run of the messages of one shard, of so many that it could
// run alone: a slot for each of the other shards may be taken by their listeners.
func (s shardsPlan) sharedBy(alone int) int {
	return max(alone/max(s.n, 1), 1)
}
