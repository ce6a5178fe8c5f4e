package listener

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/queue"
)

// session is one run of a listener.
type session struct {
	queue      queue.Queue // counted by meter
	meter      *meter.Meter
	options    sessionOptions
	dispatcher *dispatcher.Dispatcher
	pool       loopPool
	scaler     scaler
	controller loopControl
	metadata   metadata
	pauses     *pauses // the listener's
	explicit   explicitSettings
	report     *reporter
	hooks      *hook.Guard
	wake       *wake // what falls due of the messages that were given back
	dues       *wake // what falls due of events, and of polls for them that wait for their turn
	wakeups    wakeups
	poison     string      // where poison is moved, for the log
	idle       idleSetting // never nil

	fullBatch   atomic.Int64 // messages in a dequeue that is full
	settings    sync.Mutex   // held while settings change
	concurrency int          // guarded by settings
	loops       Loops        // as requested; guarded by settings

	looping     context.Context // ends when dequeuing stops, by stopLooping
	stopLooping context.CancelFunc
	requests    context.Context // of dequeues; ends after the grace period, by hangUp
	hangUp      context.CancelFunc
	fetches     context.Context // requests, with the cause of dequeues
	work        sync.WaitGroup  // loops and depth readings

	key         string       // key of the jitter of waits
	jitters     atomic.Int64 // jitters used so far
	spreads     atomic.Int64 // the same of nextSpread
	errorSeries atomic.Int64 // series of consecutive errors so far, to give their waits different jitter
	failed      chan error   // what ends the run early; buffered, one

	health                      health
	rates                       *rates
	beacon                      *beacon.Publisher // nil for none
	polls, emptyPolls, received atomic.Int64
	limits                      atomic.Int64 // dequeues that a limit held back
}

// newSession checks the options and builds the session. It starts nothing. dispatch makes its
// dispatcher.
func newSession(q queue.Queue, o sessionOptions, p *pauses, dispatch func(queue.Queue, *dispatcher.Options) (*dispatcher.Dispatcher, error)) (*session, error) {
	options, err := o.withDefaults()
	report := newReporter(q.Name(), options.OnError, options.Logger)
	wake := newWake()
	s := &session{pauses: p, report: report, hooks: report.hooks, wake: wake, dues: newWake(), explicit: explicitIn(&o), failed: make(chan error, 1)}
	s.dues.fire = func() { s.fallsDue(true) }
	if options.Wakeups != nil {
		s.wakeups.changed, s.wakeups.listens = make(chan struct{}, 1), make(chan struct{}, 1)
		s.wakeups.drained, s.wakeups.ended = make(chan struct{}), make(chan struct{})
		wake.fire = func() { s.fallsDue(false) }
		options.OnWait = s.onWait
	}
	s.meter = meter.New()
	s.queue = s.meter.Wrap(q)
	if options.Poison.Queue != nil {
		options.Poison.Queue = s.meter.Wrap(options.Poison.Queue)
	}
	options.Options.OnError, options.OnRelease = report.delivery, wake.at
	d, derr := dispatch(s.queue, &options.Options)
	if err = errors.Join(err, o.Metadata.check(q), o.Beacon.Check(q.Name()), derr); err != nil {
		return nil, fmt.Errorf("listener of %v: %w", q.Name(), err)
	}
	options.guard(report.hooks)
	s.options, s.dispatcher, s.poison = options, d, poisonDestination(options.Poison, s.queue)
	s.scaler.raised = make(chan struct{}, 1)
	s.idle.Store(&options.Idle)
	s.rates = newRates(s.totals)
	if o := options.Beacon; o.Enabled() {
		o.Queue = s.meter.Wrap(o.Queue)
		s.beacon = beacon.NewPublisher(o, s.reported, report.beacon)
	}
	s.key = strconv.FormatUint(options.Seed, 16)
	s.concurrency, s.loops = options.Concurrency, options.Loops
	s.fullBatch.Store(int64(min(options.BatchSize, s.concurrency)))
	s.pool.bounds, s.pool.heard.ready = s.bounds(), true
	s.pool.begin, s.pool.signal, s.pool.drain = s.startHeardLoop, wake.signal, wake.drain
	s.controller.next = newController(report.hooks, options.LoopController)
	s.pool.changed = s.openSlots
	return s, nil
}

// pollSoon makes a loop poll because of what happened in this listener.
func (s *session) pollSoon() {
	if s.options.Wakeups != nil {
		s.hear(false)
	} else {
		s.wake.signal()
	}
}

// fail ends the run with an error. Only the first one counts.
func (s *session) fail(err error) {
	waiting.Signal(s.failed, err)
}

// polled counts a dequeue that succeeded.
func (s *session) polled(messages int) {
	s.polls.Add(1)
	s.received.Add(int64(messages))
	if messages == 0 {
		s.emptyPolls.Add(1)
		return
	}
	s.rates.received()
	s.changed()
}

// worked reports whether any dequeue has succeeded.
func (s *session) worked() bool { return s.polls.Load() > 0 }
