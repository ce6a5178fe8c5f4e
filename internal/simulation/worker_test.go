package simulation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/scaling"
)

// process is one worker process: its way to the service, its listener, its death.
type process struct {
	world    *world
	plan     workerPlan
	wire     *faultqueue.Queue
	listener *listener.Listener[job]
	quiet    chan struct{} // ends the healthy worker; nil for the others

	birth     time.Duration // when its clocks began
	death     time.Duration // 0 while it lives
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

// live is the life of a worker from its start to its end.
func (p *process) live() {
	w := p.world
	time.Sleep(p.plan.start)
	p.birth = w.now()
	p.wire = faultqueue.New(w.server(p.plan.name), &p.plan.faults)
	p.listener = listener.New(p.queue(), w.breakage.handler(p.handle), p.options())

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.listener.Run(ctx) }()
	end := func() {
		stop()
		p.listener.Halt() // of the dead, so that nothing of it lingers
		p.err = <-done
	}

	defer p.wire.Wait() // what is late may arrive when all is over
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
		// Nothing waits for what is left of it, which has no time of its own.
		w.funerals.Go(end)
		return
	}
	end()
	w.history.note(entry{kind: returned, who: p.plan.name})
	p.state = p.listener.State()
	if gone := (*dispatcher.AbandonedError)(nil); errors.As(p.err, &gone) {
		for _, id := range gone.Messages {
			p.abandoned[id]++
		}
	}
}

// watch looks at the listener now and then until the process is to end or dies.
func (p *process) watch(done chan error) {
	for look := 0; ; look++ {
		left := p.plan.end - p.world.now()
		if left <= 0 {
			if p.plan.ending == killed {
				p.wire.Kill()
			}
			return
		}
		select {
		case <-time.After(min(left, p.world.plan.dice.within(time.Millisecond, 40*time.Second, p.plan.name, "look", str(look)))):
		case <-p.wire.Died():
			return
		case <-p.quiet:
			return
		case err := <-done:
			p.world.complain("%s: Run returned before it was told to: %v", p.plan.name, err)
			done <- err
			return
		}
		st := p.listener.State()
		p.world.history.note(entry{kind: sampled, who: p.plan.name, state: sample{st.Loops, st.Running}})
	}
}

// drain waits for the end of a stopped worker, which it may hurry, or for its death.
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

func (p *process) queue() queue.Queue {
	return &staggered{Queue: p.world.breakage.wire(p, p.wire), process: p, loops: make(map[string]*turns), fresh: make(map[string]int)}
}

func (p *process) options() *listener.Options[job] {
	d, w := p.world.plan.dice, p.plan
	o := &listener.Options[job]{
		Codec:       reader{p},
		Adopt:       p.world.plan.adopt,
		Concurrency: w.concurrency, BatchSize: w.batch, LeastFetch: w.least, Linger: w.linger,
		Loops:      w.loops,
		Idle:       scaling.Idle{Min: w.idleMin, Max: w.idleMax, New: p.curve},
		Visibility: w.visibility, Timeout: w.timeout, Grace: w.grace, SettleTimeout: w.settle,
		RetryDelay: func(attempt int, err error) time.Duration {
			return d.within(0, w.mostRetryDelay, "retry", str(attempt), said(err))
		},
		Poison: poison.Policy{
			MaxAttempts: p.world.plan.maxAttempts, MaxLost: p.world.plan.maxLost,
			Bare: p.world.plan.bare, Keep: p.world.plan.keep,
		},
		Seed:     1 + uint64(d.unit(w.name, "listener")*(1<<53)),
		OnError:  func(error) {},
		Observer: listener.Observer{Scaled: func(listener.Scale) { breathe() }},
		Logger:   slog.New(slog.DiscardHandler),
	}
	if w.hook {
		o.QueueEmpty = func(idle int) (time.Duration, bool) {
			breathe()
			return d.within(w.idleMin, w.idleMax, w.name, "idle", str(idle)), idle > 3
		}
	}
	p.world.breakage.options(o)
	return o
}

// curve is the waits of one loop after empty polls.
func (p *process) curve() backoff.BackOff { return &curve{process: p} }

type curve struct {
	*process
	empty int
}

func (c *curve) NextBackOff() time.Duration {
	breathe()
	c.empty++
	grown := c.plan.idleMin << min(c.empty, 8)
	// Below the maximum the jitter is ours, from there on the listener's.
	return grown + c.world.plan.dice.within(0, c.plan.idleMin, c.plan.name, "curve", str(c.empty))
}

// Reset is called after a batch and before the next dequeue.
func (c *curve) Reset() {
	c.empty = 0
	breathe()
}
