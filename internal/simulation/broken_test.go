package simulation

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/claimtext"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/sharded"
)

// breakage is a way in which a worker, or the service, could break a promise. The ledger must find
// each. The zero value breaks nothing.
type breakage struct {
	wire    func(*process, queue.Queue) queue.Queue // between listener and faults
	handler func(listener.Handler[job]) listener.Handler[job]
	options func(*listener.Options[job])
	sending func(queue.Queue) queue.Queue // between producer and faults
	claims  func(*process, processClaims) dispatcher.Claims
	sweep   func(processClaims) error
	outer   func(*process, queue.Queue) queue.Queue // between listener and everything else
	pause   func(running)
	limit   func(*limits.Process, queue.Queue) queue.Queue
	key     func(*listener.Message[job]) string
	place   func(sharded.Strategy) sharded.Strategy
	spread  func(queue.Sender) queue.Sender // between producer and shards
	home    func(queue.Queue) queue.Queue   // between syphon and faults, to the primary queue
	away    func(queue.Queue) queue.Queue   // the same to the backlog queues, of the producer too
	each    int                             // items of a group that are handled at once beyond the option
	slots   int                             // that a pool has more than it should
	member  func(*slots.MemberOptions)
	report  func(queue.Queue) queue.Queue // to the control queue
	only    func(*plan) bool              // the worlds that it breaks, if they are few; nil for those that its fields tell
}

// concerns reports whether the breakage can break anything in a world with this plan. Most plans have no pairing,
// no pool, no pauses …: to play them would find nothing and take most of the time.
func (b breakage) concerns(p *plan) bool {
	switch {
	case b.only != nil:
		return b.only(p)
	case b.home != nil, b.away != nil:
		return p.pairing.on
	case b.pause != nil:
		return p.pauses.on
	case b.spread != nil:
		return p.shards.on()
	case b.limit != nil:
		return slices.ContainsFunc(p.workers, workerPlan.isLimited)
	case b.place != nil:
		return p.keys.on() && p.shards.on() && p.shards.place == sharded.ByKey
	case b.key != nil:
		return p.keys.on()
	case b.slots != 0, b.member != nil:
		return p.pool.on()
	case b.report != nil:
		return p.beacons
	}
	return true
}

func (b breakage) withDefaults() breakage {
	if b.wire == nil {
		b.wire = func(_ *process, q queue.Queue) queue.Queue { return q }
	}
	if b.handler == nil {
		b.handler = func(h listener.Handler[job]) listener.Handler[job] { return h }
	}
	if b.options == nil {
		b.options = func(*listener.Options[job]) {}
	}
	if b.sending == nil {
		b.sending = func(q queue.Queue) queue.Queue { return q }
	}
	if b.claims == nil {
		b.claims = func(_ *process, c processClaims) dispatcher.Claims { return c }
	}
	if b.outer == nil {
		b.outer = func(_ *process, q queue.Queue) queue.Queue { return q }
	}
	for _, f := range []*func(queue.Queue) queue.Queue{&b.home, &b.away} {
		if *f == nil {
			*f = func(q queue.Queue) queue.Queue { return q }
		}
	}
	if b.report == nil {
		b.report = func(q queue.Queue) queue.Queue { return q }
	}
	if b.member == nil {
		b.member = func(*slots.MemberOptions) {}
	}
	if b.pause == nil {
		b.pause = func(l running) { l.Pause() }
	}
	if b.limit == nil {
		b.limit = (*limits.Process).Wrap
	}
	if b.key == nil {
		b.key = func(m *listener.Message[job]) string { return m.Key }
	}
	if b.place == nil {
		b.place = func(s sharded.Strategy) sharded.Strategy { return s }
	}
	if b.spread == nil {
		b.spread = func(q queue.Sender) queue.Sender { return q }
	}
	if b.sweep == nil {
		b.sweep = func(c processClaims) error {
			_, err := c.Sweep(context.Background())
			return err
		}
	}
	return b
}

// certain is a sender that says of no message that it may be there twice.
type certain struct{ queue.Sender }

func (c certain) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := c.Sender.Enqueue(ctx, text, o)
	m.MaybeTwice = false
	return m, err
}

// tampered is a queue with some operations replaced. Nil ones are not replaced.
type tampered struct {
	queue.Queue
	poison  bool
	copying func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error)
	dequeue func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error)
	update  func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error)
	remove  func(ctx context.Context, q queue.Queue, l queue.Lease) error
	look    func(ctx context.Context, q queue.Queue) (queue.Properties, error)
}

func (q *tampered) Sibling(suffix string) queue.Queue {
	c := *q
	c.Queue, c.poison = q.Queue.Sibling(suffix), true
	return &c
}

func (q *tampered) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if q.poison && q.copying != nil {
		return q.copying(ctx, q.Queue, text, o)
	}
	return q.Queue.Enqueue(ctx, text, o)
}

func (q *tampered) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.dequeue != nil {
		return q.dequeue(ctx, q.Queue, n, visibility)
	}
	return q.Queue.Dequeue(ctx, n, visibility)
}

func (q *tampered) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	if q.update != nil {
		return q.update(ctx, q.Queue, l, text, visibility)
	}
	return q.Queue.Update(ctx, l, text, visibility)
}

func (q *tampered) Delete(ctx context.Context, l queue.Lease) error {
	if q.remove != nil {
		return q.remove(ctx, q.Queue, l)
	}
	return q.Queue.Delete(ctx, l)
}

func (q *tampered) Properties(ctx context.Context) (queue.Properties, error) {
	if q.look != nil {
		return q.look(ctx, q.Queue)
	}
	return q.Queue.Properties(ctx)
}

// looking returns a breakage of how listeners read the properties of their queue.
func looking(look func(ctx context.Context, q queue.Queue) (queue.Properties, error)) breakage {
	return breakage{outer: func(_ *process, q queue.Queue) queue.Queue { return &tampered{Queue: q, look: look} }}
}

// paused returns the breakage for worlds with pauses.
func paused(b breakage) breakage {
	b.only = func(p *plan) bool { return p.pauses.on }
	return b
}

// ofKinds returns the breakage for worlds with kinds.
func ofKinds(b breakage) breakage {
	b.only = func(p *plan) bool { return p.kinds }
	return b
}

// ofGroups returns the breakage for worlds with groups.
func ofGroups(b breakage) breakage {
	b.only = func(p *plan) bool { return p.groups }
	return b
}

// homecoming returns a breakage of how syphons put messages into the primary queue.
func homecoming(change func(*queue.EnqueueOptions)) breakage {
	return breakage{home: func(q queue.Queue) queue.Queue {
		return &tampered{Queue: q, poison: true, copying: func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error) {
			changed := *o
			change(&changed)
			return q.Enqueue(ctx, text, &changed)
		}}
	}}
}

// wired returns a breakage that replaces operations of the listener's queue.
func wired(with func(*process) tampered) breakage {
	return breakage{wire: func(p *process, q queue.Queue) queue.Queue {
		t := with(p)
		t.Queue = q
		return &t
	}}
}

// adapted returns a breakage of listeners that have an adaptive limit.
func adapted(change func(*listener.Options[job])) breakage {
	return breakage{only: (*plan).adapts, options: func(o *listener.Options[job]) {
		if len(o.Interceptors) > 0 { // nothing else has them
			change(o)
		}
	}}
}

// onlyFirst is a control queue that loses all reports but the first.
type onlyFirst struct {
	queue.Queue
	put atomic.Bool
}

func (q *onlyFirst) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if q.put.Swap(true) {
		return queue.Message{}, nil
	}
	return q.Queue.Enqueue(ctx, text, o)
}

func (q *onlyFirst) Update(_ context.Context, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
	return l, nil
}

// leakingSlots are slots that nothing returns.
type leakingSlots struct{ dispatcher.Slots }

func (leakingSlots) Free(int) {}

func (leakingSlots) Leave() {}

func leakSlots(o *listener.Options[job]) { o.Slots = leakingSlots{o.Slots.(dispatcher.Slots)} }

// brokenClaims are claims with some operations replaced. Nil ones are not replaced.
type brokenClaims struct {
	processClaims
	put  func(ctx context.Context, body []byte) (string, error)
	open func(ctx context.Context, claim string) ([]byte, error)
	done func(ctx context.Context, claim string) error
}

func (c brokenClaims) Put(ctx context.Context, body []byte) (string, error) {
	if c.put != nil {
		return c.put(ctx, body)
	}
	return c.processClaims.Put(ctx, body)
}

func (c brokenClaims) Open(ctx context.Context, claim string) ([]byte, error) {
	if c.open != nil {
		return c.open(ctx, claim)
	}
	return c.processClaims.Open(ctx, claim)
}

func (c brokenClaims) Settled(ctx context.Context, claim string) error {
	if c.done != nil {
		return c.done(ctx, claim)
	}
	return c.processClaims.Settled(ctx, claim)
}

// kindInText and doneInText are the parameters of an envelope that name the kind, and the items of
// a group that are done.
var (
	kindInText = regexp.MustCompile(`&kd=\w+`)
	doneInText = regexp.MustCompile(`&gd=[\w-]+`)
)

// uncounted are the parameters of an envelope that count.
var uncounted = regexp.MustCompile(`&(n|s)=\d+`)

// TestLedgerFindsViolations breaks every promise in turn. Within a few seeds the ledger must report
// that promise.
func TestLedgerFindsViolations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breakage breakage
		words    string
	}{
		"a poison copy is not made": {wired(func(*process) tampered {
			return tampered{copying: func(context.Context, queue.Queue, string, *queue.EnqueueOptions) (queue.Message, error) {
				return queue.Message{Lease: queue.Lease{ID: "none"}}, nil
			}}
		}), "a delete without a success, a discard or a copy"},

		"a poison copy is made after the delete": {wired(func(p *process) tampered {
			return tampered{copying: func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error) {
				p.world.running.Go(func() {
					time.Sleep(10 * time.Second)
					_, _ = q.Enqueue(context.WithoutCancel(ctx), text, o)
				})
				return queue.Message{Lease: queue.Lease{ID: "later"}}, nil
			}}
		}), "a delete without a success, a discard or a copy"},

		"messages are deleted on arrival": {wired(func(*process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				for _, m := range batch {
					_ = q.Delete(ctx, m.Lease)
				}
				return batch, err
			}}
		}), "a delete without a success, a discard or a copy"},

		"a message of the response is dropped": {wired(func(*process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				return batch[:max(len(batch)-1, 0)], err
			}}
		}), "received"},

		"the service loses a message": {wired(func(p *process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				if len(batch) > 1 {
					_ = p.world.engine.Queue(jobs).Delete(ctx, batch[0].Lease)
				}
				return batch, err
			}}
		}), "lost"},

		"failures are not counted": {wired(func(*process) tampered {
			return tampered{update: func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
				return q.Update(ctx, l, uncounted.ReplaceAllString(text, ""), visibility)
			}}
		}), "MaxAttempts is"},

		"failures are counted twice": {wired(func(*process) tampered {
			return tampered{update: func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
				return q.Update(ctx, l, strings.Replace(text, "&n=1", "&n=2", 1), visibility)
			}}
		}), "attempts are recorded after one run"},

		"a body is changed": {wired(func(*process) tampered {
			return tampered{update: func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
				return q.Update(ctx, l, text+" ", visibility)
			}}
		}), "the text"},

		"a copy is made of what succeeds": {wired(func(p *process) tampered {
			var seen sync.Map // queue.ID → queue.Message
			return tampered{
				dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
					batch, err := q.Dequeue(ctx, n, visibility)
					for _, m := range batch {
						seen.Store(m.ID, m)
					}
					return batch, err
				},
				remove: func(ctx context.Context, q queue.Queue, l queue.Lease) error {
					m, _ := seen.Load(l.ID)
					record := poisonrecord.New(q.Name(), m.(queue.Message), 0, poison.ReasonAttempts, nil)
					copies := p.world.server(p.plan.name).Sibling("-poison")
					_ = poisonrecord.Policy{Queue: copies}.Copy(ctx, record)
					return q.Delete(ctx, l)
				},
			}
		}), "succeeded and poisoned, with 1 successes and 1 copies, without a cause"},

		"deletes are not sent": {wired(func(*process) tampered {
			return tampered{remove: func(context.Context, queue.Queue, queue.Lease) error { return nil }}
		}), "ended without a settlement, without a cause"},

		"give-backs are not sent": {wired(func(*process) tampered {
			return tampered{update: func(_ context.Context, _ queue.Queue, l queue.Lease, _ string, _ time.Duration) (queue.Lease, error) {
				return l, nil
			}}
		}), "ended without a settlement, without a cause"},

		"a message comes twice in one batch": {wired(func(*process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				if len(batch) > 0 && len(batch) < n {
					batch = append(batch, batch[0])
				}
				return batch, err
			}}
		}), "one delivery is handled twice"},

		"a dequeue asks for too many": {wired(func(*process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, min(n+8, queue.MaxBatch), visibility)
				return batch[:min(n, len(batch))], err
			}}
		}), "a dequeue asks for"},

		"dead workers go on": {breakage{wire: func(p *process, _ queue.Queue) queue.Queue {
			return p.world.server(p.plan.name)
		}}, "a worker acts after its end"},

		"too many handlers run": {breakage{options: func(o *listener.Options[job]) {
			o.Concurrency += 4
		}}, "the concurrency is"},

		"too many loops run": {breakage{options: func(o *listener.Options[job]) {
			o.Fetch.Loops.Max += 3
			o.Fetch.Loops.Min += 3
		}}, "loops"},

		"too many attempts are made": {breakage{options: func(o *listener.Options[job]) {
			o.Poison.MaxAttempts += 2
		}}, "MaxAttempts is"},

		"too many deliveries are lost": {breakage{options: func(o *listener.Options[job]) {
			o.Poison.MaxLost += 5
		}}, "MaxLost is"},

		"a failure is swallowed": {breakage{handler: func(h listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				_ = h(ctx, m)
				return nil
			}
		}}, "a delete without a success, a discard or a copy"},

		"a success is taken for a failure": {breakage{handler: func(h listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				if err := h(ctx, m); err != nil {
					return err
				}
				return errBroken
			}
		}}, "a failure is recorded for a run that did not fail"},

		"the producer is told of an acceptance that never was": {breakage{sending: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, poison: true, copying: func(context.Context, queue.Queue, string, *queue.EnqueueOptions) (queue.Message, error) {
				return queue.Message{Lease: queue.Lease{ID: "invented"}}, nil
			}}
		}}, "an acceptance that never was"},

		"a body is settled before its message": {breakage{claims: func(_ *process, c processClaims) dispatcher.Claims {
			return brokenClaims{processClaims: c, open: func(ctx context.Context, claim string) ([]byte, error) {
				body, err := c.Open(ctx, claim)
				_ = c.Settled(ctx, claim)
				return body, err
			}}
		}}, "needs the body that becomes a tombstone"},

		"the body of a poison copy is settled": {wired(func(p *process) tampered {
			return tampered{copying: func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error) {
				m, err := q.Enqueue(ctx, text, o)
				if name := claimOf(text); err == nil && name != "" {
					_ = p.world.changeBody(ctx, entry{kind: entombed, who: p.plan.name, text: name}, blob.Ref{Container: container, Name: name}, nil, nil)
				}
				return m, err
			}}
		}), "needs the body that becomes a tombstone"},

		"a body is lost": {breakage{claims: func(p *process, c processClaims) dispatcher.Claims {
			return brokenClaims{processClaims: c, open: func(ctx context.Context, claim string) ([]byte, error) {
				body, err := c.Open(ctx, claim)
				parsed, _ := claimtext.Parse(claim)
				_ = p.world.blobs.Delete(ctx, parsed.Ref)
				return body, err
			}}
		}}, "is gone, and its job is not done"},

		"a body that is there is said to be gone": {breakage{claims: func(_ *process, c processClaims) dispatcher.Claims {
			return brokenClaims{processClaims: c, open: func(context.Context, string) ([]byte, error) { return nil, envelope.ErrClaimGone }}
		}}, `the reason "blobgone" is not what happened`},

		"a job that is not done is said to be": {breakage{claims: func(_ *process, c processClaims) dispatcher.Claims {
			return brokenClaims{processClaims: c, open: func(context.Context, string) ([]byte, error) { return nil, envelope.ErrClaimSettled }}
		}}, "a delete without a success, a discard or a copy"},

		"bodies are not settled": {breakage{claims: func(_ *process, c processClaims) dispatcher.Claims {
			return brokenClaims{processClaims: c, done: func(context.Context, string) error { return nil }}
		}}, "is left, and no message needs it"},

		"a pause by the program is ignored": {breakage{pause: func(running) {}}, "a dequeue in a pause that began at"},

		"the flag of a queue is ignored": {paused(looking(func(ctx context.Context, q queue.Queue) (queue.Properties, error) {
			p, err := q.Properties(ctx)
			p.Metadata = nil
			return p, err
		})), "by the flag true"},

		"the flag of a queue is not read": {looking(func(context.Context, queue.Queue) (queue.Properties, error) {
			return queue.Properties{}, nil
		}), "the metadata were not read within"},

		"the flag of a queue is read too often": {paused(looking(func(ctx context.Context, q queue.Queue) (queue.Properties, error) {
			p, err := q.Properties(ctx)
			if len(p.Metadata) > 0 {
				_, _ = q.Properties(ctx)
			}
			return p, err
		})), "a reading of the flag in a pause"},

		"the flag is read while the program pauses": {breakage{pause: func(running) {}, outer: func(p *process, q queue.Queue) queue.Queue {
			return &tampered{Queue: q, dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				_, _ = q.Properties(ctx)
				return q.Dequeue(ctx, n, visibility)
			}}
		}}, "a reading in a pause by the program"},

		"a backlog queue loses messages": {breakage{away: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				for _, m := range batch {
					_ = q.Delete(ctx, m.Lease)
				}
				return nil, err
			}}
		}}, "a message that was diverted never came home"},

		"messages are brought home again and again": {breakage{away: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, remove: func(context.Context, queue.Queue, queue.Lease) error { return nil }}
		}}, "a message came twice without a lost response or a kill"},

		"messages stay in backlog queues": {breakage{away: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, dequeue: func(context.Context, queue.Queue, int, time.Duration) ([]queue.Message, error) { return nil, nil }}
		}}, "messages are not home"},

		"delays are lost on the way home": {homecoming(func(o *queue.EnqueueOptions) { o.Delay = 0 }), "with too short a delay"},

		"lives are lost on the way home": {homecoming(func(o *queue.EnqueueOptions) { o.TTL = queue.Forever }), "with another life"},

		"a sender is not told that a message may come twice": {breakage{sending: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, poison: true, copying: func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error) {
				m, err := q.Enqueue(ctx, text, o)
				m.MaybeTwice = false
				return m, err
			}}
		}}, "the sender was not told"},

		"a refused message is sent again soon": {breakage{only: func(p *plan) bool { return p.pairing.throttled }, sending: func(q queue.Queue) queue.Queue {
			return &tampered{Queue: q, poison: true, copying: func(ctx context.Context, q queue.Queue, text string, o *queue.EnqueueOptions) (queue.Message, error) {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				if m, err := q.Enqueue(short, text, o); !errors.Is(err, queue.ErrThrottled) {
					return m, err
				}
				return q.Enqueue(ctx, text, o)
			}}
		}}, "after a busy queue had refused it"},

		"a pool has too many slots": {breakage{slots: 6}, "handlers run at once in a pool of"},

		"jobs of one key run at once": {breakage{key: func(m *listener.Message[job]) string { return string(m.ID) }}, "run at once with"},

		"a limit is ignored": {breakage{limit: func(_ *limits.Process, q queue.Queue) queue.Queue { return q }}, "more were sent than"},

		"keys are placed anywhere": {breakage{place: func(sharded.Strategy) sharded.Strategy { return sharded.Random }}, "and an earlier one in"},

		"a sender is not told of two shards": {breakage{spread: func(q queue.Sender) queue.Sender { return certain{q} }}, "two shards have a message"},

		"only the first report arrives": {breakage{report: func(q queue.Queue) queue.Queue { return &onlyFirst{Queue: q} }}, "lives, and a viewer does not see it"},

		"handlers do not return slots of an adaptive limit": {adapted(leakSlots), "has not emptied the queue in"},

		"a worker does not return slots of an adaptive limit": {adapted(leakSlots), "want none running and none held"},

		"an adaptive limit exceeds its highest": {adapted(func(o *listener.Options[job]) {
			most, _ := o.Slots.Size()
			higher := must(slots.NewAdaptive(&slots.AdaptiveOptions{Max: most + 4, Start: most + 4}))
			o.Slots, o.Interceptors = higher.Slots(nil), []listener.Interceptor{higher.Intercept}
		}), "the concurrency is"},

		"an adaptive limit stays at its lowest": {adapted(func(o *listener.Options[job]) {
			o.Slots = must(slots.NewAdaptive(&slots.AdaptiveOptions{Max: 1})).Slots(nil)
		}), "slots and got"},

		"a job that finds its dependency exhausted is deleted": {adapted(func(o *listener.Options[job]) {
			o.Interceptors = append(o.Interceptors, func(ctx context.Context, _ dispatcher.Delivery, next func(context.Context) error) error {
				if err := next(ctx); !errors.Is(err, slots.ErrExhausted) {
					return err
				}
				return nil
			})
		}), "a delete without a success, a discard or a copy"},

		"a job that finds its dependency exhausted has failed": {adapted(func(o *listener.Options[job]) {
			o.Interceptors = nil
		}), "a failure is recorded for a run that did not fail"},

		"a job that fails is postponed": {adapted(func(o *listener.Options[job]) {
			all := must(slots.NewAdaptive(&slots.AdaptiveOptions{Exhausted: func(error) bool { return true }}))
			o.Interceptors = append(o.Interceptors, all.Intercept)
		}), "a failure is not recorded"},

		"a kind is taken for another": {ofKinds(wired(func(p *process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				for i := range batch {
					if len(p.plan.kinds) > 0 {
						batch[i].Text = kindInText.ReplaceAllString(batch[i].Text, "&kd="+p.plan.kinds[0])
					}
				}
				return batch, err
			}}
		})), "which its worker does not know"},

		"an unknown kind is poison": {ofKinds(wired(func(p *process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				for _, m := range batch {
					if !p.plan.knows(p.world.sent(m.Text)) {
						copies := p.world.server(p.plan.name).Sibling("-poison")
						_ = poisonrecord.Policy{Queue: copies}.Copy(ctx, poisonrecord.New(q.Name(), m, 0, poison.ReasonUndecodable, errBroken))
					}
				}
				return batch, err
			}}
		})), "is poisoned by a worker that does not know it"},

		"the items that are done are forgotten": {ofGroups(wired(func(*process) tampered {
			return tampered{dequeue: func(ctx context.Context, q queue.Queue, n int, visibility time.Duration) ([]queue.Message, error) {
				batch, err := q.Dequeue(ctx, n, visibility)
				for i := range batch {
					batch[i].Text = doneInText.ReplaceAllString(batch[i].Text, "")
				}
				return batch, err
			}}
		})), "is handled, and was recorded as done"},

		"the items that are done are not recorded": {ofGroups(wired(func(*process) tampered {
			return tampered{update: func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
				return q.Update(ctx, l, doneInText.ReplaceAllString(text, ""), visibility)
			}}
		})), "is done, and not recorded as done"},

		"items are recorded as done that are not": {ofGroups(wired(func(*process) tampered {
			return tampered{update: func(ctx context.Context, q queue.Queue, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
				return q.Update(ctx, l, doneInText.ReplaceAllString(text, "&gd=_w"), visibility)
			}}
		})), "is recorded as done, and is not"},

		"a group is deleted with items that are not done": {ofGroups(breakage{handler: func(h listener.Handler[job]) listener.Handler[job] {
			return func(ctx context.Context, m *listener.Message[job]) error {
				if err := h(ctx, m); m.Items == 0 {
					return err
				}
				return nil
			}
		}}), "a delete without a success, a discard or a copy"},

		"too many items are handled at once": {ofGroups(breakage{each: 3}), "items of a group are handled at once"},

		"reserved slots are taken": {breakage{member: func(o *slots.MemberOptions) { o.Reserve = 0 }}, "which leaves others less than they have or reserve"},

		"tombstones are swept too early": {breakage{sweep: func(c processClaims) error {
			for body := range c.List(context.Background()) {
				if body.Settled {
					_ = c.store.Delete(context.Background(), body.Ref)
				}
			}
			return nil
		}}, "the retention is"},

		"bodies are purged that messages need": {breakage{sweep: func(c processClaims) error {
			_, err := c.Purge(context.Background(), time.Second)
			return err
		}}, "swept, and it was made a tombstone at 0s"},
	} {
		if testing.Short() && name != "messages are deleted on arrival" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const within = 300
			for n := uint64(1); n <= within; n++ {
				if !c.breakage.concerns(newPlan(n)) {
					continue
				}
				for _, violation := range run(t, n, c.breakage).violations {
					if strings.Contains(violation, c.words) {
						t.Logf("seed %d: %s", n, violation)
						return
					}
				}
			}
			t.Errorf("violations of %d seeds: none has %q", within, c.words)
		})
	}
}
