package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
	"github.com/millrace/millrace/wakeup"
)

// pool is a [Pool] that is measured and decided about. Its goroutine owns all fields but those under mu.
type pool struct {
	Pool
	agent *Agent
	meter *metered.Meter // counts the requests of measuring

	queues   []*queueReader
	controls []*controlReader
	actuator caller[int]
	store    *store

	fleet    *beacon.Fleet
	heard    bool      // an instance has reported
	strange  time.Time // since when more report than there are; zero if no more do
	history  memory
	before   reading               // of the last measurement; zero before the first
	decided  scaling.Optional[int] // in a dry run: instances that there would be
	hold     hold
	outages  outages
	wakeups  wakeups
	wake     chan struct{} // says that work has come; buffered
	problems []*Error      // since the last round

	mu     sync.Mutex
	public record // guarded by mu
}

func newPool(a *Agent, p Pool) (_ *pool, err error) {
	made := &pool{Pool: p, agent: a, meter: new(metered.Meter), wake: make(chan struct{}, 1)}
	var names []queue.Name
	for _, q := range p.Queues {
		made.queues = append(made.queues, &queueReader{queue: made.meter.Wrap(q)})
		names = append(names, q.Name())
	}
	for _, q := range p.Beacons {
		control := &controlReader{queue: made.meter.Wrap(q)}
		if control.viewer, err = beacon.NewViewer(control.queue); err != nil {
			return nil, err
		}
		made.controls = append(made.controls, control)
	}
	if made.fleet, err = beacon.NewFleet(names...); err != nil {
		return nil, err
	}
	made.history = newMemory(p.Policy)
	made.outages = outages{logger: a.logger(p.Name), now: map[failing]*outage{}, tried: map[string]bool{}}
	return made, nil
}

// dry reports whether nothing is changed.
func (p *pool) dry() bool { return p.Actuator == nil }

// run measures and decides until ctx ends.
func (p *pool) run(ctx context.Context) {
	defer p.wakeups.close()
	for ctx.Err() == nil {
		begin := time.Now()
		p.round(ctx)
		// A flood of events costs one measurement a second.
		waiting.For(wakeInterval-time.Since(begin), ctx.Done())
		if left := p.agent.options.Interval - time.Since(begin); left > 0 {
			waiting.ForChange(left, p.wake, ctx.Done())
		}
	}
	p.stop()
}

// round measures once, decides, and makes it so.
func (p *pool) round(ctx context.Context) {
	r := p.read(ctx)
	if ctx.Err() != nil {
		return // what failed, failed because of the stop
	}
	for _, e := range r.errs {
		p.fail(e)
	}
	sample, decidable := p.sample(r)
	var decided *Decided
	if decidable {
		p.noticeOthers(sample)
		decided = p.decide(ctx, sample)
	}
	p.before = r
	p.keep(ctx, false)
	p.settle(ctx, sample, decided)
}

// sample turns a reading into a sample and adds it to the history. Without the number of instances there is no deciding: the sample
// then has the last one that is known.
func (p *pool) sample(r reading) (s scaling.Sample, decidable bool) {
	s = scaling.Sample{At: r.at, Depth: r.depth, Visible: r.visible, HeadAge: r.headAge}
	s.Instances, decidable = r.instances.Get()
	last, found := p.history.last()
	if !decidable {
		s.Instances = last.Instances
	}
	p.reported(&s, r)
	if p.dry() {
		// What it last decided, or at first those that report.
		s.Instances, decidable = p.decided.Or(s.Ready.Or(0)), true
		if !p.decided.IsKnown() && s.Instances <= 0 {
			s.Instances = p.Policy.WithDefaults().Min
		}
		s.CPU, s.Memory = spread(s.CPU, s.Ready, s.Instances), spread(s.Memory, s.Ready, s.Instances)
		s.Ready = scaling.Optional[int]{} // of those that would be there nobody knows
	}
	split(&s)
	var since passed // the measurement before
	if !p.before.at.IsZero() {
		since = between(p.before.at, r.at)
	}
	s.Arrival = arrival(p.before.depth, r.depth, since, s.Service, p.agent.options.Interval/2)
	if !decidable && !found {
		return s, false // there is no number that would not be wrong
	}
	p.history.add(s, since)
	if since.setBack() > 0 && p.store != nil {
		p.store.archived = time.Time{} // all of it is to be written anew
	}
	return s, decidable
}

// strangeAfter is for how long more instances must report than there are. So long may a platform
// take to remove surplus ones, and a viewer to forget killed ones.
const strangeAfter = 10 * time.Minute

// noticeOthers adds an error if more instances report than the actuator has, because somebody else starts some for the same
// queues. Up to a tenth more is tolerated: a platform may be that far behind.
func (p *pool) noticeOthers(s scaling.Sample) {
	ready, known := s.Ready.Get()
	switch {
	case p.dry() || !known:
		return
	case 10*ready <= 11*s.Instances:
		p.strange = time.Time{}
	case p.strange.IsZero():
		p.strange = s.At
	case s.At.Sub(p.strange) >= strangeAfter:
		p.fail(&Error{
			Doing: counting, Err: fmt.Errorf("%d report, and this agent has %d", ready, s.Instances),
			Consequence: "another agent, or somebody else, starts instances for the same queues, which nobody counts together",
			Hint:        "stop one of the two",
		})
	}
	p.outages.tried[counting] = true
}

// decide decides about the newest sample, and makes it so.
func (p *pool) decide(ctx context.Context, s scaling.Sample) *Decided {
	p.hold.see(s.At, s.Instances)
	d := p.hold.apply(s.At, p.Policy, p.Policy.Decide(p.history.samples))
	decided := &Decided{Pool: p.Name, Sample: s, Decision: d, DryRun: p.dry()}
	announce := func() {
		p.agent.logger(p.Name).InfoContext(ctx, "instances: "+d.Why, "from", d.From, "to", d.Instances, "dry_run", p.dry())
	}
	// The reason comes before what follows from it, but while changes fail not at each measurement.
	fails := p.outages.now[failing{doing: changing}] != nil
	if decided.Changes() && !fails {
		announce()
	}
	if !p.dry() && decided.Changes() {
		p.hold.asks(d.Instances)
		decided.Err = p.scale(ctx, d.Instances)
	}
	if decided.Err == nil {
		p.decided = scaling.Known(d.Instances)
		if decided.Changes() && fails {
			announce()
		}
	}
	if !p.dry() {
		p.watchForWork(d.Instances == 0 && decided.Err == nil)
	}
	return decided
}

// spread returns the share that n instances would use of what the ready ones do.
func spread(share scaling.Optional[float64], ready scaling.Optional[int], n int) scaling.Optional[float64] {
	used, known := share.Get()
	if of, counted := ready.Get(); known && counted && n > 0 {
		return scaling.Known(min(used*float64(of)/float64(n), 1))
	}
	return scaling.Optional[float64]{}
}

// settle publishes what the round came to.
func (p *pool) settle(ctx context.Context, s scaling.Sample, d *Decided) {
	p.outages.round(ctx, p.problems)
	p.publish(s, d, p.problems)
	for _, e := range p.problems {
		p.agent.report(e)
	}
	p.problems = nil
	if f := p.agent.options.OnDecision; f != nil && d != nil {
		p.agent.hooks.Call("OnDecision", func() { f(*d) })
	}
}

func (p *pool) fail(e *Error) {
	e.Pool = p.Name
	p.problems = append(p.problems, e)
}

// readInstances asks the actuator how many instances there are.
func (p *pool) readInstances(ctx context.Context) (scaling.Optional[int], []*Error) {
	if p.dry() {
		return scaling.Optional[int]{}, nil
	}
	n, err := p.actuator.call(ctx, requestTimeout, p.Actuator.Instances)
	if err == nil && n < 0 {
		err = fmt.Errorf("the actuator returned %d", n)
	}
	if err != nil {
		return scaling.Optional[int]{}, []*Error{{
			Doing: readingInstances, Err: err, Consequence: "nothing is decided until that is known", Hint: "see whether the platform works and the agent may ask it",
		}}
	}
	return scaling.Known(n), nil
}

// scale asks the actuator for n instances. The stop of the agent does not cut it off: half a change is worse than a late one.
func (p *pool) scale(ctx context.Context, n int) error {
	ctx, cancel := p.graceful(ctx)
	defer cancel()
	p.outages.tried[changing] = true
	_, err := p.actuator.call(ctx, scaleTimeout, func(ctx context.Context) (int, error) { return n, p.Actuator.Scale(ctx, n) })
	if err != nil {
		e := &Error{Doing: fmt.Sprintf("scale to %d", n), kind: changing, Err: err, Consequence: "how many there are is read again, and decided anew, at the next measurement"}
		p.fail(e)
		return e
	}
	return nil
}

// graceful returns a context that ends stopGrace after ctx, or at a halt.
func (p *pool) graceful(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stopped := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(stopGrace):
		case <-p.agent.halted.Done():
		case <-longer.Done():
		}
		cancel()
	})
	return longer, func() { stopped(); cancel() }
}

func (p *pool) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
	defer cancel()
	p.keep(ctx, true)
	for _, e := range p.problems {
		p.agent.logger(p.Name).ErrorContext(ctx, e.Error())
		p.agent.report(e)
	}
}

// wakeInterval is how long after a measurement an event starts the next one at the earliest.
const wakeInterval = time.Second

// wakeups are the subscriptions of one pool. It has some while the pool has no instances: between processes an event reaches only one
// of those who are ready, so an agent that always listened would take events away from the workers. Only the goroutine of
// the pool uses it, but for waiting.
type wakeups struct {
	waiting       atomic.Bool // the pool has no instances: an event matters
	subscriptions []wakeup.Subscription
}

// watchForWork listens for events if the pool has no instances, and leaves them to the workers otherwise.
func (p *pool) watchForWork(none bool) {
	w := &p.wakeups
	if p.agent.options.Wakeups == nil || w.waiting.Load() == none {
		return
	}
	if !none {
		w.close()
		return
	}
	w.waiting.Store(true)
	p.outages.tried[subscribing] = true
	for _, q := range p.Queues {
		if err := p.subscribe(q.Name()); err != nil {
			w.close()
			p.fail(&Error{
				Doing: subscribing, Queue: q.Name(), Err: err,
				Consequence: "work on the pool without instances is found at the next measurement", Hint: "use a source that can deliver the events of this queue",
			})
			return
		}
	}
}

func (p *pool) subscribe(name queue.Name) (err error) {
	var subscription wakeup.Subscription
	failure := hook.Run(func() {
		subscription, err = p.agent.options.Wakeups.Subscribe(name, func(q queue.Name, _ int64, due time.Time) {
			// An account that is not known may be ours.
			ours := q.Queue == name.Queue && (q.Account == name.Account || q.Account == "" || name.Account == "")
			if ours && !due.After(time.Now()) {
				waiting.Signal(p.wake, struct{}{})
			}
		}, func(listening bool) {
			if listening { // what was published before is not delivered, so a look is due
				waiting.Signal(p.wake, struct{}{})
			}
		})
	})
	if failure != nil {
		return panicked(failure)
	}
	if err == nil && subscription == nil {
		err = errors.New("the source returned no subscription")
	}
	if err == nil {
		p.wakeups.subscriptions = append(p.wakeups.subscriptions, subscription)
	}
	return err
}

func (w *wakeups) close() {
	w.waiting.Store(false)
	for _, s := range w.subscriptions {
		hook.Run(func() { _ = s.Close() })
	}
	w.subscriptions = nil
}

// ErrInUse means that another agent keeps the history of the same pool in the same folder. Where files cannot be locked, as on
// Windows, it is not noticed.
var ErrInUse = errors.New("another agent uses it: stop that one, or choose another folder")

// open prepares the pool for its run: it locks and reads its history. Only what cannot be mended by going on is an error.
func (p *pool) open() error {
	folder := p.agent.options.Folder
	if folder == "" {
		return nil
	}
	s, err := openStore(folder, p.Name)
	if err != nil {
		return err
	}
	p.store = s
	h, errs := s.read(time.Now())
	for _, err := range errs {
		p.fail(&Error{Doing: readingHistory, once: true, Err: err, Consequence: "the agent starts without it, and removes nothing until it has seen enough"})
	}
	for _, sample := range h {
		p.history.restore(sample)
		p.hold.last = scaling.Known(sample.Instances) // the agent before may have added some after it was written
	}
	if len(h) > 0 {
		p.hold.asks(p.Policy.Decide(p.history.samples).Instances) // as the agent before did
	}
	return nil
}

// close releases what open has taken.
func (p *pool) close() {
	if p.store == nil {
		return
	}
	p.store.close()
	p.store = nil
}

// keep writes the history, if there is a folder and it is time, or at the end. Otherwise it appends the newest sample.
func (p *pool) keep(ctx context.Context, end bool) {
	if p.store == nil || len(p.history.samples) == 0 {
		return
	}
	if !end && !p.store.due() {
		p.store.append(ctx, p.history.samples)
		return
	}
	p.outages.tried[keepingHistory] = true
	if err := p.store.write(ctx, p.history.samples, end); err != nil {
		p.fail(&Error{
			Doing: keepingHistory, Err: err, Consequence: "an agent that is started now has an older one, or none",
			Hint: "see whether the disk is full and the folder writable",
		})
	}
}

// left waits for calls that hang until end is closed, and returns an error for each that is left behind.
func (p *pool) left(end <-chan struct{}) (errs []error) {
	add := func(ok bool, e *Error) {
		if !ok {
			e.Pool, e.Err, e.Consequence = p.Name, errHangs, "it is left behind"
			errs = append(errs, e)
		}
	}
	for _, q := range p.queues {
		add(q.properties.wait(end), &Error{Doing: readingDepth, Queue: q.queue.Name()})
		add(q.peek.wait(end), &Error{Doing: peeking, Queue: q.queue.Name()})
	}
	for _, c := range p.controls {
		add(c.view.wait(end), &Error{Doing: readingReports, Queue: c.queue.Name()})
	}
	if p.store != nil {
		add(p.store.writing.wait(end), &Error{Doing: keepingHistory})
	}
	add(p.actuator.wait(end), &Error{Doing: "end a call of the actuator"})
	return errs
}
