package listener

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling/beacon"
)

// session is one run of a listener. Its mutable state is in the owner.
type session struct {
	owner  owner
	agenda agenda
	epoch  time.Time     // of instants
	alarm  chan struct{} // buffered, one: the earliest alarm or instant has changed

	queue      queue.Queue // counted by meter
	meter      *metered.Meter
	options    sessionOptions
	dispatcher *dispatcher.Dispatcher
	controller controller // nil for none; one call at a time
	explicit   explicitSettings
	bounded    atomic.Bool // the log says that the rule asks for more loops than the bounds allow
	report     *reporter
	hooks      *hook.Guard
	wakeups    wakeups
	rates      *rates
	beacon     *beacon.Publisher // nil for none
	jitters    jitters

	looping     context.Context // ends when dequeuing stops, by stopLooping
	stopLooping context.CancelFunc
	requests    context.Context // of dequeues; ends after the grace period, by hangUp
	hangUp      context.CancelFunc
	fetches     context.Context // requests, with the cause of dequeues
	work        sync.WaitGroup  // loops, readings of the properties, and watchTime
	failed      chan error      // the reason to end the run early; buffered, one
}

// owner runs step. The goroutine that tells of an event takes the step, because a loop asks several
// times per poll, and an answer over channels would cost more than a poll of a queue in memory.
type owner struct {
	mu     sync.Mutex
	state  state      // guarded by mu
	step   transition // the newest; guarded by mu
	asleep []*loop    // longest first; as many as state.asleep; guarded by mu
	parked []*loop    // loops that wait for a change; guarded by mu
}

// jitters are the series that the jitter of waits comes from. The loops share them, and they depend
// on the seed and so differ between processes. With series per loop it would matter which loop
// polls first, and a run could not be repeated.
type jitters struct {
	key    string
	curves atomic.Int64 // drawn for curves
	waits  atomic.Int64 // drawn for waits of Idle.Max; apart, because loops that poll at one instant draw for curves first
	errors atomic.Int64 // series of consecutive errors
}

func (j *jitters) forCurve() float64 { return waiting.Jitter(j.key, int(j.curves.Add(1))) }

func (j *jitters) forWait() float64 { return waiting.Jitter(j.key+"/spread", int(j.waits.Add(1))) }

// newSession checks the options and builds the session. It starts nothing. dispatch makes its
// dispatcher.
func newSession(q queue.Queue, o sessionOptions, dispatch func(queue.Queue, *dispatcher.Options) (*dispatcher.Dispatcher, error)) (*session, error) {
	options, err := o.withDefaults()
	report := newReporter(q.Name(), options.OnError, options.Logger)
	s := &session{
		epoch: time.Now().Add(-time.Second), alarm: make(chan struct{}, 1), explicit: explicitIn(&o),
		report: report, hooks: report.hooks, failed: make(chan error, 1), meter: new(metered.Meter),
	}
	if options.Wakeups != nil {
		s.wakeups = newWakeups()
		options.OnWait = func(mayOpen bool) { s.tell(event{what: crowded, mayOpen: mayOpen, backlog: s.dispatcher.Backlog()}) }
	}
	s.queue = s.meter.Wrap(q)
	if options.Poison.Queue != nil {
		options.Poison.Queue = s.meter.Wrap(options.Poison.Queue)
	}
	options.OnFailing = report.limited
	options.Options.OnError, options.OnRelease = report.delivery, s.onRelease
	d, derr := dispatch(s.queue, &options.Options)
	derr = cmp.Or(errors.Unwrap(derr), derr) // without its prefix, which names the queue too
	var berr error
	if o := beacon.Options(options.Beacon); o.Queue != nil {
		if !hook.IsNil(o.Queue) {
			o.Queue = s.meter.Wrap(o.Queue)
		}
		s.beacon, berr = beacon.NewPublisher(q.Name(), s.reported, report.beacon, &o)
	}
	if err = errors.Join(err, o.Metadata.check(q), berr, derr); err != nil {
		return nil, fmt.Errorf("listener of %v: %w", q.Name(), err)
	}
	options.guard(report.hooks)
	s.options, s.dispatcher = options, d
	s.rates = newRates(s.totals)
	s.jitters.key = strconv.FormatUint(options.Seed, 16)
	s.controller = options.controller
	s.owner.state = state{
		wakeups: options.Wakeups != nil, controlled: s.controller != nil, metadata: options.Metadata != IgnoreMetadata,
		shared: options.Slots != nil, safety: options.Fetch.SafetyPoll, linger: options.linger(), batch: options.BatchSize, key: s.jitters.key,
		concurrency: options.Concurrency, requested: options.Fetch.Loops, idle: &options.Fetch.Idle, ready: true,
	}
	s.owner.state.applyBounds()
	return s, nil
}

// tell tells the owner of an event, and carries out the actions that follow from it. It returns the
// next state and the actions.
func (s *session) tell(e event) (state, answer) {
	now, a := s.decide(nil, e)
	s.followUp(a.rest)
	return now, a
}

// answer has the actions that follow from an event.
type answer struct {
	verbs uint64   // a bit for each kind of action
	rest  []action // that are not carried out yet, or have a value
}

func (a answer) is(do verb) bool { return a.verbs&(1<<do) != 0 }

// with returns the action of this kind, if there is one.
func (a answer) with(do verb) (one action, ok bool) {
	i := slices.IndexFunc(a.rest, func(one action) bool { return one.do == do })
	if i < 0 {
		return one, false
	}
	return a.rest[i], true
}

// decide takes the step for an event, of a loop or nil. It carries out the actions that never wait,
// under the lock, so that they happen in the order of the events. The caller must pass the others
// to followUp.
func (s *session) decide(l *loop, e event) (now state, follows answer) {
	e.stopped = s.looping != nil && s.looping.Err() != nil
	o := &s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	e.now = time.Since(s.epoch)
	o.step.state, o.step.e, o.step.actions = &o.state, e, o.step.actions[:0]
	o.step.take()
	for _, a := range o.step.actions {
		follows.verbs |= 1 << a.do
		switch a.do {
		case startLoops:
			for range a.n {
				s.startLoop(a.on)
			}
		case openSlots:
			s.dispatcher.Open(a.n, a.m)
		case openOnce:
			s.dispatcher.OpenOnce(s.options.BatchSize)
		case resize:
			s.dispatcher.Resize(a.n)
		case wakeLoop:
			o.asleep[0].woken <- struct{}{}
			o.asleep = slices.Delete(o.asleep, 0, 1)
		case unpark:
			for _, l := range o.parked {
				l.woken <- struct{}{}
			}
			o.parked = nil
		case setAlarm:
			waiting.Signal(s.alarm, struct{}{})
		case tellSource:
			waiting.Signal(s.wakeups.changed, struct{}{})
		case applySettings:
			s.dispatcher.SetThresholds(unless(s.explicit.attempts, a.n), unless(s.explicit.lost, a.n))
			s.dispatcher.BeginWith(time.Duration(unless(s.explicit.visibility, a.m)) * time.Second)
		case goToSleep:
			o.asleep = append(o.asleep, l)
		case park:
			o.parked = append(o.parked, l)
		case end, release, again, callMore, tellDenied: // these only answer
		default:
			follows.rest = append(follows.rest, a)
		}
	}
	return o.state, follows
}

// followUp carries out the actions that call the program or send requests.
func (s *session) followUp(actions []action) {
	for _, a := range actions {
		switch a.do {
		case tellScaled:
			s.notifyScaled()
		case tellPause:
			s.tellOfPause(a.was, a.by)
			s.tell(event{what: announced})
		case tellSettings:
			s.report.info("settings in the metadata of the queue", slog.Int(thresholdName, a.n), slog.Int(timeoutName, a.m))
		case complain:
			s.report.delivery(&dispatcher.SetupError{Queue: s.queue.Name(), Detail: a.text})
		case readFlag:
			s.work.Go(s.readFlag) // the caller is part of the work, here and below
		case readDepth:
			s.work.Go(func() { s.scaleByDepth(a.n, a.on) })
		case lookAtDepth:
			s.work.Go(s.lookAtDepth)
		case size:
			s.scaleByBatch(a.n)
		case askController:
			s.askController()
		}
	}
}

// awaken takes a loop off the owner's lists after its wait. If it is not on a list the owner has
// woken it.
func (s *session) awaken(l *loop) (woken bool) {
	o := &s.owner
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := slices.Index(o.asleep, l); i >= 0 {
		o.asleep = slices.Delete(o.asleep, i, i+1)
		o.step.state, o.step.e = &o.state, event{what: awoke, now: time.Since(s.epoch)}
		o.step.take()
		return false
	}
	if i := slices.Index(o.parked, l); i >= 0 {
		o.parked = slices.Delete(o.parked, i, i+1)
		return false
	}
	<-l.woken
	return true
}

// snapshot returns the state of the owner.
func (s *session) snapshot() state {
	s.owner.mu.Lock()
	defer s.owner.mu.Unlock()
	return s.owner.state
}

// timeOf returns the time of an instant, zero for never.
func (s *session) timeOf(at instant) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return s.epoch.Add(at)
}

// startLoop starts one loop. It is called under the owner's lock, so that the goroutine that is new
// makes the curve, which may block in a hook, and tells the observer if the caller must not wait.
func (s *session) startLoop(tells bool) {
	s.work.Go(func() {
		if tells {
			s.notifyScaled()
		}
		s.newLoop().run(s.looping)
	})
}

func (s *session) notifyScaled() {
	if f := s.options.Observer.Scaled; f != nil {
		f(s.queue.Name(), s.snapshot().active)
	}
}

// start makes the session ready for run. Handlers see the values of ctx, and the loops also its
// end. With an error nothing has started.
func (s *session) start(ctx context.Context) error {
	if err := s.dispatcher.Start(ctx); err != nil {
		return err
	}
	s.looping, s.stopLooping = context.WithCancel(ctx)
	// Dequeues outlive the stop, because cancelling one may hide 32 messages for a whole
	// visibility timeout.
	s.requests, s.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	s.fetches = metered.WithCause(s.requests, metered.CauseFetch)
	return nil
}

// abort ends a session that was started and is not run.
func (s *session) abort(ctx context.Context) error {
	s.stopLooping()
	s.hangUp()
	return s.dispatcher.Drain(ctx)
}

// run runs the loops until the context of start ends, halted is closed or the service refuses
// the first requests, and then drains.
func (s *session) run(halted <-chan struct{}) error {
	defer s.stopLooping()
	defer s.hangUp()
	_, begun := s.decide(nil, event{what: enters, phase: Running})
	s.logStart()
	report, leave := s.accompany(s.looping)
	s.followUp(begun.rest) // a pause from before Run is told after the start
	s.work.Go(func() { s.watchTime(s.looping) })
	failure := s.subscribe(halted)
	if failure == nil {
		s.tell(event{what: subscribed})
		report()
		select {
		case <-s.looping.Done():
		case <-halted:
		case failure = <-s.failed:
		}
	}
	s.stopLooping()
	s.tell(event{what: enters, phase: Draining})
	s.dispatcher.Stop()
	s.logDraining(failure)
	if running, settling := s.dispatcher.Running(); running+settling > 0 {
		s.changed() // else the last report follows immediately
	}
	err := errors.Join(failure, s.drain(halted), s.unsubscribe(halted))
	leave()
	s.tell(event{what: enters, phase: Stopped})
	s.logStopped()
	return err
}

// fail ends the run with an error. Only the first one counts.
func (s *session) fail(err error) { waiting.Signal(s.failed, err) }

// drain shuts down after the stop: loops end, handlers finish within the grace period, and
// nothing runs any more.
func (s *session) drain(halted <-chan struct{}) error {
	grace, over := context.WithTimeout(context.Background(), max(s.options.Grace, 0))
	defer over()
	ended := make(chan struct{})
	var watch sync.WaitGroup // waited for below
	watch.Go(func() {
		select {
		case <-halted:
			over()
		case <-grace.Done():
		}
		s.hangUp()
		select {
		case <-halted: // also after the grace period, while handlers ignore their context
			s.dispatcher.Halt()
		case <-ended:
		}
	})
	s.work.Wait()
	err := s.dispatcher.Drain(grace)
	close(ended)
	over()
	watch.Wait()
	return err
}

func (s *session) logStart() {
	now := s.snapshot() // the listener can be configured already
	destination := "stays in its queue"
	if p, err := poisonrecord.Policy(s.options.Poison).WithDefaults(s.queue); err == nil && !p.Keep {
		destination = p.Queue.Name().String()
	}
	s.report.info("listening", slog.Int("concurrency", now.concurrency),
		slog.Int("loops_min", now.bounds.Min), slog.Int("loops_max", now.bounds.Max), slog.String("poison", destination))
}

// logDraining logs that the listener drains, with the number of running handlers.
func (s *session) logDraining(failure error) {
	running, _ := s.dispatcher.Running()
	attrs := []slog.Attr{slog.Int("running", running), slog.Duration("grace", max(s.options.Grace, 0))}
	if failure != nil {
		attrs = append(attrs, slog.String("error", failure.Error()))
	}
	if running > 0 {
		attrs = append(attrs, slog.String("hint", "a second signal stops at once"))
	}
	s.report.info("draining", attrs...)
}

func (s *session) logStopped() {
	s.report.logSuppressed()
	st := s.state()
	attrs := []slog.Attr{
		slog.Int64("succeeded", st.Outcomes[Deleted]), slog.Int64("retried", st.Outcomes[Retried]), slog.Int64("poisoned", st.Outcomes[Poisoned]),
	}
	for _, one := range []struct {
		name  string
		count int64
	}{{"snoozed", st.Outcomes[Snoozed]}, {"discarded", st.Outcomes[Discarded]}, {"duplicates", st.Outcomes[Duplicate]}, {"kept", st.Outcomes[Kept]}, {"returned", st.Outcomes[Returned]}, {"lost", st.Outcomes[Lost]}, {"unsettled", st.Outcomes[Unsettled]}, {"errors", st.Errors}} {
		if one.count > 0 {
			attrs = append(attrs, slog.Int64(one.name, one.count))
		}
	}
	took := time.Since(s.timeOf(s.snapshot().begun))
	attrs = append(attrs, slog.Int64("requests", st.Requests), slog.String("by_cause", s.meter.Counts().String()), slog.Duration("after", took.Round(time.Millisecond)))
	s.report.info("stopped", attrs...)
}
