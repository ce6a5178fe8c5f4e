package simulation

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/paired"
)

// pairingPlan is how the producer of a world sends through an outage of its queue: to backlog queues in
// another account, from which a syphon brings the messages home. The zero value is that it waits.
type pairingPlan struct {
	on              bool
	backlogs        int
	interval, probe time.Duration
	throttled       bool // the primary queue refuses most messages for a while, and many senders meet it
	clean           bool // no response is lost, and nobody is killed: no message comes twice
	secondary       faultqueue.Options
	syphon          faultqueue.Options // of its requests to the primary queue
	kill            time.Duration      // when the first syphon is killed; 0 for never
}

// drawPairing draws the pairing of a world and the outage of its queue.
func (p *plan) drawPairing() {
	d := p.dice
	if p.faultless || p.policy.bare || !d.chance(0.12, "pairing") { // bare copies of two equal messages cannot be distinguished
		return
	}
	a := pairingPlan{
		on: true, backlogs: d.number(1, 4, "pairing", "backlogs"), clean: d.chance(0.5, "pairing", "clean"),
		interval: pick(d, []time.Duration{-1, time.Second, 5 * time.Second}, "pairing", "interval"),
		probe:    d.within(time.Second, 40*time.Second, "pairing", "probe"),
	}
	away := faultqueue.Rates{Unavailable: 0.7, Throttled: d.unit("pairing", "throttled") * 0.1, LostRequest: 0.2}
	if !a.clean {
		away.Unavailable, away.LostResponse, away.Late = 0.5, 0.1, 0.1
		if d.chance(0.5, "pairing", "kill") {
			a.kill = d.within(time.Minute, p.horizon, "pairing", "kill at")
		}
	}
	outage := incident{from: d.within(0, p.horizon*2/3, "pairing", "from"), long: d.within(20*time.Second, 4*time.Minute, "pairing", "long"), faults: everything(away)}
	outage.long = min(outage.long, p.horizon-outage.from)
	p.incidents = append([]incident{outage}, p.incidents...)
	if a.throttled = d.chance(0.5, "pairing", "busy"); a.throttled {
		busy := incident{
			from: d.within(0, p.horizon*2/3, "pairing", "busy from"), long: d.within(20*time.Second, 2*time.Minute, "pairing", "busy for"), queue: jobs.Queue,
			faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Enqueue: {Throttled: 0.5 + d.unit("pairing", "how busy")/2}},
		}
		busy.long = min(busy.long, p.horizon-busy.from)
		p.incidents = append([]incident{busy}, p.incidents...)
	}
	a.secondary, a.syphon = a.faults(p, "secondary"), a.faults(p, "syphon")
	p.pairing = a
}

// faults draws the faults of requests to the secondary account, or of the syphon to the primary one.
func (a pairingPlan) faults(p *plan, who string) faultqueue.Options {
	o := p.faults("pairing " + who)
	o.Missing = faultqueue.Window{} // of another account
	for op, r := range o.Faults {
		r.Death = 0
		if a.clean {
			r = onlyRefused(r)
		}
		o.Faults[op] = r
	}
	return o
}

// onlyRefused leaves the faults in which the server does nothing.
func onlyRefused(r faultqueue.Rates) faultqueue.Rates {
	return faultqueue.Rates{Throttled: r.Throttled, Unavailable: r.Unavailable, LostRequest: r.LostRequest}
}

// pairing is the paired queue of the producer, and what it and the syphons did.
type pairing struct {
	world *world
	queue *paired.Queue // of the producer
	wires []*faultqueue.Queue
	ended sync.WaitGroup // of the syphons
}

// secondary is in another account.
var secondary = queue.Name{Account: "elsewhere", Queue: jobs.Queue}

// pair returns a paired queue over that wire to the primary queue, and the wire to the secondary account.
func (a *pairing) pair(wire *faultqueue.Queue, primary queue.Queue) (*paired.Queue, *faultqueue.Queue) {
	w := a.world
	o := w.plan.pairing.secondary
	o.Phases = []faultqueue.Phase{{From: w.plan.horizon - w.now(), For: 1 << 62, Faults: everything(faultqueue.Rates{})}}
	there := must(faultqueue.New(w.engine.Queue(secondary), &o))
	a.wires = append(a.wires, wire, there)
	c := w.plan.pairing
	return must(paired.New(primary, w.breakage.away(there), &paired.Options{
		Backlogs: c.backlogs, FailoverInterval: c.interval, ProbeInterval: c.probe, Logger: slog.New(slog.DiscardHandler),
	})), there
}

// pairProducer pairs the queue of the producer.
func (w *world) pairProducer(wire *faultqueue.Queue) queue.Queue {
	a := w.pairing
	a.queue, _ = a.pair(wire, &resting{Queue: wire, world: w, refused: map[string]time.Duration{}})
	for a.queue.Pair(context.Background()) != nil {
		time.Sleep(time.Second)
	}
	a.ended.Go(a.syphon)
	return w.breakage.sending(a.queue)
}

// resting checks that a message that a busy queue has refused is sent again after 10 s at the earliest.
type resting struct {
	queue.Queue
	world   *world
	refused map[string]time.Duration // when, by text; guarded by world.mu
}

func (q *resting) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	w := q.world
	w.mu.Lock()
	at, was := q.refused[text]
	w.mu.Unlock()
	if was && w.now() < at+10*time.Second {
		w.addViolation("a message was sent again %v after a busy queue had refused it", w.now()-at)
	}
	m, err := q.Queue.Enqueue(ctx, text, o)
	if errors.Is(err, queue.ErrThrottled) {
		w.mu.Lock()
		defer w.mu.Unlock()
		q.refused[text] = w.now()
	}
	return m, err
}

// syphon brings messages home until none is left after the horizon. A syphon that is killed is followed by
// another one.
func (a *pairing) syphon() {
	w := a.world
	if kill := w.plan.pairing.kill; kill > w.now() {
		a.runSyphon(func() { time.Sleep(kill - w.now()) }, true)
	}
	a.runSyphon(a.awaitHome, false)
}

// runSyphon runs a syphon until wait returns.
func (a *pairing) runSyphon(wait func(), kill bool) {
	w := a.world
	primary := must(faultqueue.New(w.server("syphon"), w.plan.since(w.now(), w.plan.pairing.syphon)))
	q, there := a.pair(primary, w.breakage.home(primary))
	defer q.Close()
	s := must(paired.NewSyphon([]*paired.Queue{q}, &paired.SyphonOptions{MinPoll: time.Second, MaxPoll: time.Minute, Parallel: 4, Seed: uint64(w.plan.dice) + 1}))
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) }) // what it abandoned comes up again
	wait()
	if kill {
		primary.Kill()
		there.Kill()
		s.Halt()
	}
	stop()
	running.Wait()
	primary.Wait()
	there.Wait()
}

// maxHome is how long after the horizon the last message may be brought home: the longest wait of a
// message whose queue did not accept, a lease that nobody ended, and the longest rest and poll.
const maxHome = 10*time.Minute + time.Minute + 2*time.Minute + 2*time.Minute

// awaitHome waits until the producer has sent everything, the outage is over and the backlog queues are empty.
func (a *pairing) awaitHome() {
	w := a.world
	<-w.produced
	time.Sleep(w.plan.horizon - w.now())
	for due := w.now() + maxHome; ; time.Sleep(rest) {
		n := int64(0)
		for _, q := range a.backlogs() {
			p, err := q.Properties(context.Background())
			if err != nil {
				w.addViolation("read a backlog queue: %v", err)
			}
			n += p.Depth
		}
		switch {
		case n == 0:
			return
		case w.now() > due:
			w.addViolation("%d messages are not home %v after the end of all faults", n, maxHome)
			return
		}
	}
}

// backlogs returns the backlog queues without faults.
func (a *pairing) backlogs() (all []queue.Queue) {
	for i := range a.world.plan.pairing.backlogs {
		all = append(all, a.world.engine.Queue(secondary).Sibling("-backlog-0"+str(i)))
	}
	return all
}

// noteDiverted records that a backlog queue has accepted a message.
func (w *world) noteDiverted(j jobPlan, text string, m queue.Message, from time.Duration) {
	e := entry{kind: diverted, who: "producer", n: j.n, text: text, hidden: from + j.delay}
	if j.ttl > 0 {
		e.until = w.now() + j.ttl
	}
	if m.MaybeTwice {
		e.outcome = maybeTwice
	}
	w.history.note(e)
}

// maybeTwice is the outcome of a message that another queue may have as well.
const maybeTwice = "maybe twice"

// tardiness is what whole seconds and the time of requests may add to or take from a delay and a life.
const tardiness = 10 * time.Second

// maxLate is how long after its caller has given up a request may arrive: see plan.faults.
const maxLate = 2 * time.Minute

// maxLateness is tardiness if one request may arrive late.
const maxLateness = tardiness + maxLate

// closePairing checks that every diverted message came home, as it was sent, and no oftener than was said.
func (b *ledger) closePairing() {
	if !b.world.plan.pairing.on {
		return
	}
	home := make(map[string][]entry)
	for _, e := range b.world.history.entries {
		if e.kind == accepted {
			home[e.text] = append(home[e.text], e)
		}
	}
	for _, e := range b.world.history.entries {
		if e.kind == diverted {
			b.checkDiverted(e, home[e.text])
		}
	}
	if cause := b.world.pairing.mayRepeat(); !cause {
		for _, all := range home {
			if len(all) > 1 && all[len(all)-1].who == "syphon" {
				b.addViolation(all[1], "a message came twice without a lost response or a kill")
			}
		}
	}
}

// checkDiverted checks a diverted message against those with its text that the primary queue accepted.
func (b *ledger) checkDiverted(e entry, home []entry) {
	// The life of a message begins again when it arrives: in the backlog queue, and at home.
	came, late, longer := false, maxLateness, maxLateness+maxLate
	if b.world.plan.pairing.clean {
		late, longer = tardiness, tardiness
	}
	for _, h := range home {
		switch {
		case h.who != "syphon" && e.outcome != maybeTwice:
			b.addViolation(e, "the sender was not told that the primary queue may have the message too")
		case h.who != "syphon":
			continue
		case h.at < e.at-late: // the response to the put may come late
			b.addViolation(h, "a message came home before it was diverted")
		case h.hidden < e.hidden-tardiness && e.hidden > h.at+tardiness:
			b.addViolation(h, "a message came home with too short a delay: it was sent to be hidden until %v", e.hidden)
		case e.until == 0 != (h.until == 0), e.until > 0 && h.until > max(e.until, h.at, h.hidden)+longer:
			b.addViolation(h, "a message came home with another life: it was sent to expire at %v", e.until)
		}
		came = true
	}
	if !came && e.until == 0 {
		b.addViolation(e, "a message that was diverted never came home")
	}
}

// mayRepeat reports whether a request of the producer or of a syphon may have taken effect without its
// sender's knowing.
func (a *pairing) mayRepeat() bool {
	if a.world.plan.pairing.kill > 0 {
		return true
	}
	for _, q := range a.wires {
		for _, c := range q.Trace() {
			switch c.Fault {
			case "", faultqueue.Throttled, faultqueue.Unavailable, faultqueue.LostRequest:
			default:
				return true
			}
		}
	}
	return false
}
