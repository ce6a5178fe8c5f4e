package simulation

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
)

// process is one worker process with its queue and its listener.
type process struct {
	world    *world
	plan     workerPlan
	wire     *faultqueue.Queue
	reports  *faultqueue.Queue // to the control queue; nil for none
	listener running
	keys     *perkey.Keys          // of which it runs one handler at a time; or nil
	limit    *limits.Process       // or nil
	adaptive *slots.Adaptive       // or nil
	together listener.Handler[job] // of several messages; nil for one at a time
	each     listener.Handler[job] // of groups
	parts    sync.Map              // *listener.Message[job] → *handling, of those on their way into a batch
	born     chan struct{}         // closed when it has begun
	calm     chan struct{}         // ends a worker that survives; nil for the others

	longest   atomic.Int64    // of the runs that have ended
	hangs     []time.Duration // until when its runs hang; guarded by world.mu
	birth     time.Duration   // when its clocks began
	death     time.Duration   // 0 while it lives
	state     listener.State
	err       error              // what Run returned
	abandoned map[queue.ID]int64 // deliveries
}

func (p *process) isDead() bool {
	select {
	case <-p.wire.Died():
		return true
	default:
		return false
	}
}

// live runs a worker from its start to its end.
func (p *process) live() {
	w := p.world
	time.Sleep(p.plan.start - w.now())
	p.birth = w.now()
	p.wire = must(faultqueue.New(w.server(p.plan.name), w.plan.since(p.birth, p.plan.faults)))
	if p.plan.together > 0 {
		p.together = dispatcher.Batch(p.handleTogether, p.plan.together, p.plan.company)
	}
	p.each = dispatcher.EachItem(p.handleItem, max(p.plan.each+w.breakage.each, 1))
	p.keys, p.limit, p.adaptive = w.keysOf(&p.plan), p.plan.newLimit(), p.plan.newAdaptive()
	p.listener = p.listen()

	close(p.born)
	p.pauseProgram()

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.listener.Run(ctx) }()
	end := func() {
		stop()
		p.listener.Halt() // ends what a dead process still runs
		p.err = <-done
	}

	defer p.wire.Wait() // late calls may arrive after the end
	if p.reports != nil {
		defer p.reports.Wait()
	}
	p.watch(done)
	if !p.isDead() {
		w.history.note(entry{kind: stopping, who: p.plan.name})
		if p.plan.ending == halted {
			p.listener.Halt()
		}
		stop()
		p.drain(done)
	}
	if p.isDead() {
		p.death = w.now()
		w.history.note(entry{kind: died, who: p.plan.name})
		// Nothing waits for what a dead process still runs.
		w.ended.Go(end)
		return
	}
	end()
	w.history.note(entry{kind: returned, who: p.plan.name})
	p.state = p.listener.State()
	for _, id := range abandonedIn(p.err) {
		p.abandoned[id]++
	}
}

// watch samples the listener's state and changes its settings, until the process must end or dies.
func (p *process) watch(done chan error) {
	changes := p.plan.changes
	for look := 0; ; look++ {
		next := p.world.plan.dice.within(time.Millisecond, 40*time.Second, p.plan.name, "look", str(look))
		if p.plan.survives && p.world.now() > p.world.plan.horizon {
			next *= 10 // little changes
		}
		left, change := p.plan.end-p.world.now(), time.Duration(1<<62)
		if p.plan.survives {
			left = 1 << 62
		}
		if len(changes) > 0 {
			change = max(p.birth+changes[0].at-p.world.now(), 1)
		}
		if left <= 0 {
			if p.plan.ending == killed {
				p.wire.Kill()
			}
			return
		}
		select {
		case <-time.After(min(left, next, change)):
		case <-p.wire.Died():
			return
		case <-p.calm:
			return
		case err := <-done:
			p.world.addViolation("%s: Run returned before it was told to: %v", p.plan.name, err)
			done <- err
			return
		}
		if change <= min(left, next) {
			p.configure(changes[0])
			changes = changes[1:]
			continue
		}
		st := p.listener.State()
		p.world.history.note(entry{kind: sampled, who: p.plan.name, state: sample{st.Loops, st.Running}})
	}
}

// configure changes the settings of the listener.
func (p *process) configure(c change) {
	if c.Idle.Min > 0 {
		c.Idle.Curve = p.curve
	}
	p.world.history.note(entry{kind: configured, who: p.plan.name, settings: c.Settings})
	if err := p.listener.Configure(c.Settings); err != nil {
		p.world.addViolation("%s: %v", p.plan.name, err)
	}
}

// drain waits for the end of a stopped worker, which it may halt, or for its death.
func (p *process) drain(done chan error) {
	var hurry <-chan time.Time
	if p.plan.ending == hurried {
		hurry = time.After(p.plan.hurry)
	}
	for {
		select {
		case err := <-done:
			done <- err
			return
		case <-hurry:
			p.listener.Halt()
		case <-p.wire.Died():
			return
		}
	}
}

// queue returns a queue as the listener has it, over this wire.
func (p *process) queue(wire queue.Queue) queue.Queue {
	q := p.limitedTo(p.world.breakage.wire(p, wire))
	if p.plan.frozen.long > 0 {
		q = freezing{q, p}
	}
	if p.plan.release == 2 {
		q = &nextRelease{Queue: q, newer: make(map[queue.ID]bool)}
	}
	q = &staggered{Queue: tardy{q, p}, process: p, loops: make(map[string]*loopCalls), fresh: make(map[string]int)}
	if p.world.plan.pauses.on {
		q = &witness{Queue: q, process: p}
	}
	return p.world.breakage.outer(p, q)
}

func (p *process) options() *listener.Options[job] {
	d, w := p.world.plan.dice, p.plan
	o := &listener.Options[job]{
		Concurrency: w.concurrency, Timeout: w.timeout, Grace: w.grace, Codec: reader{p}, Claims: p.claims(),
		Fetch: listener.FetchOptions{
			BatchSize: w.batch, MinFetch: w.least, Linger: w.linger, Loops: w.loops,
			Idle: listener.Idle{Min: w.idleMin, Max: w.idleMax, Curve: p.curve},
		},
		Lease: listener.LeaseOptions{Visibility: w.visibility, SettleTimeout: w.settle, StuckAfter: w.stuckAfter, GiveUp: w.giveUp},
		Wire:  listener.WireOptions{AcceptForeign: w.policy.adopt},
		Poison: poison.Policy{
			MaxAttempts: w.policy.maxAttempts, MaxLost: w.policy.maxLost,
			Bare: w.policy.bare, Keep: w.policy.keep,
		},
		Seed:   1 + uint64(d.unit(w.name, "listener")*(1<<53)),
		Logger: slog.New(steps{slog.DiscardHandler}),
		Beacon: p.report(),
	}
	if w.wakes {
		o.Wakeups, o.Fetch.SafetyPoll = &wakeMember{broker: p.world.broker, process: p}, p.world.plan.wakes.safety
		if p.world.plan.wakes.engine {
			o.Wakeups = p.world.engine
		}
	}
	p.joinPool(o)
	p.adapt(o)
	p.hooks(o)
	p.world.breakage.options(o)
	return o
}
