package listener

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Listener takes typed jobs off one queue. Make one with [New]; it is safe for
// concurrent use, and [Listener.Run] runs it once.
type Listener[T any] struct {
	queue   queue.Queue
	handler Handler[T]
	options *Options[T]

	halted closeOnce // opened by Halt

	mu      sync.Mutex
	session *session[T] // what Run runs, nil before; guarded by mu
}

// New returns a listener. It starts and sends nothing; [Listener.Run] refuses bad
// options before it starts.
func New[T any](q queue.Queue, h Handler[T], o *Options[T]) *Listener[T] {
	if o != nil { // the caller may go on using its struct
		c := *o
		o = &c
	}
	return &Listener[T]{queue: q, handler: h, options: o}
}

// session is one run of a listener.
type session[T any] struct {
	queue      queue.Queue
	options    Options[T]
	dispatcher *dispatcher.Dispatcher[T]
	pool       loopPool
	scaler     scaler
	report     *reporter
	hooks      *hook.Guard
	wake       *wake
	poison     string      // where poison goes, for the log
	idle       idleSetting // never nil

	settings    sync.Mutex // held while they are changed
	concurrency int        // guarded by settings
	loops       Loops      // as they were asked for; guarded by settings

	looping  context.Context // ends when dequeuing must stop
	requests context.Context // of dequeues; ends after the grace period
	work     sync.WaitGroup  // loops and depth readings

	key         string       // what the spread of waits depends on
	jitters     atomic.Int64 // numbers drawn for waits
	errorSeries atomic.Int64 // rows of errors that loops met, to tell their waits apart
	failed      chan error   // what ends the run early; room for one

	health                      health
	requested                   atomic.Int64 // requests sent
	polls, emptyPolls, received atomic.Int64
}

// Run takes jobs until ctx ends, then drains and returns nil. It returns early, and
// at once, when the options are bad or the service refuses us before anything ever
// worked; an [*AbandonedError] names handlers that would not stop. Handlers
// see the values of ctx, not its end. A listener runs once.
func (l *Listener[T]) Run(ctx context.Context) error {
	s, err := l.prepare()
	if err != nil {
		return err
	}
	looping, stop := context.WithCancel(ctx)
	defer stop()
	// Dequeues outlive the stop: cancelling one may hide 32 messages for a whole
	// visibility timeout.
	requests, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	s.looping, s.requests = looping, requests

	s.dispatcher.Start(ctx)
	if !l.publish(s) {
		return errors.Join(fmt.Errorf("listener of %v: it has run already: make a new one", l.queue.Name()), s.dispatcher.Drain(ctx))
	}
	s.logStart()
	s.work.Go(func() { s.wake.watch(looping) })
	s.work.Go(func() { s.watchSaturation(looping) })
	s.grow(0) // which is Loops.Min

	var failure error
	select {
	case <-ctx.Done():
	case <-l.halted.done():
	case failure = <-s.failed:
	}
	stop()
	s.pool.close()
	s.dispatcher.Stop()
	s.logDraining(failure)
	err = errors.Join(failure, l.drain(s, hangUp))
	s.logStopped()
	return err
}

// begin checks everything before anything starts.
func (l *Listener[T]) prepare() (*session[T], error) {
	if err := check(l.queue, l.handler); err != nil {
		return nil, err
	}
	options, err := l.options.withDefaults()
	report := newReporter(l.queue.Name(), options.OnError, options.Logger)
	wake := newWake()
	s := &session[T]{report: report, hooks: report.hooks, wake: wake, failed: make(chan error, 1)}
	s.queue = countingQueue{l.queue, &s.requested}
	if options.Poison.Queue != nil {
		options.Poison.Queue = countingQueue{options.Poison.Queue, &s.requested}
	}
	d, derr := dispatcher.New(s.queue, l.handler, options.dispatcher(report.delivery, wake.at))
	if err = errors.Join(err, derr); err != nil {
		return nil, fmt.Errorf("listener of %v: %w", l.queue.Name(), err)
	}
	options.guard(report.hooks)
	s.options, s.dispatcher, s.poison = options, d, poisonDestination(options.Poison, s.queue)
	s.scaler.raised = make(chan struct{}, 1)
	s.idle.Store(&options.Idle)
	s.key = strconv.FormatUint(options.Seed, 16)
	s.concurrency, s.loops = options.Concurrency, options.Loops
	s.pool.bounds = s.loops.bounds(s.concurrency, options.BatchSize)
	s.pool.changed = func(loops int) { d.Open(loops*options.BatchSize, s.pool.bounds.Max*options.BatchSize) }
	return s, nil
}

// publish makes the session visible to State, unless there was one before.
func (l *Listener[T]) publish(s *session[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		return false
	}
	l.session = s
	return true
}

// drain is the shutdown after the stop: loops end, handlers finish within the grace
// period, and nothing runs any more.
func (l *Listener[T]) drain(s *session[T], hangUp func()) error {
	grace, over := context.WithTimeout(context.Background(), max(s.options.Grace, 0))
	defer over()
	ended := make(chan struct{})
	var watch sync.WaitGroup // owned by this call, which ends it
	watch.Go(func() {
		select {
		case <-l.halted.done():
			over()
		case <-grace.Done():
		}
		hangUp()
		select {
		case <-l.halted.done(): // also after the grace period, while handlers do not stop
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

// Halt stops the listener without a grace period, or ends the one that runs: the
// contexts of handlers are cancelled, their messages given back. Run returns soon
// after. It is safe to call at any time and more than once.
func (l *Listener[T]) Halt() { l.halted.close() }

// grow starts loops up to the target and tells the observer, not under the fleet's lock.
func (s *session[T]) grow(target int) {
	if s.pool.grow(target, s.startLoop) > 0 {
		s.notifyScaled()
	}
}

// leave lets a loop end if it may, and tells the observer.
func (s *session[T]) tryStop() bool {
	if !s.pool.tryStop() {
		return false
	}
	s.notifyScaled()
	return true
}

// surplus lets a loop end if the settings allow fewer, and tells the observer.
func (s *session[T]) stopIfExcess() bool {
	if !s.pool.stopIfExcess() {
		return false
	}
	s.notifyScaled()
	return true
}

func (s *session[T]) notifyScaled() {
	if f := s.options.Observer.Scaled; f != nil {
		active, _, _ := s.pool.counts()
		f(Scale{Queue: s.queue.Name(), Loops: active})
	}
}

// startLoop starts one loop. It is called under the fleet's lock.
func (s *session[T]) startLoop() {
	// Its curve is made there, not under the lock: a hook may block.
	s.work.Go(func() { s.newLoop().run(s.looping) })
}

// fail ends the run with an error; the first one counts.
func (s *session[T]) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// polled counts a dequeue that was answered.
func (s *session[T]) polled(messages int) {
	s.polls.Add(1)
	s.received.Add(int64(messages))
	if messages == 0 {
		s.emptyPolls.Add(1)
	}
}

// worked tells whether any dequeue was ever answered.
func (s *session[T]) worked() bool { return s.polls.Load() > 0 }

// State returns what the listener is doing. It sends nothing: Depth is the one last
// read. Before Run it is zero.
func (l *Listener[T]) State() State {
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	if s == nil {
		return State{}
	}
	return s.state()
}

// state is [Listener.State] of a run.
func (s *session[T]) state() State {
	st := State{
		Requests: s.requested.Load(), Polls: s.polls.Load(), EmptyPolls: s.emptyPolls.Load(), Received: s.received.Load(),
		Renewed: s.dispatcher.Renewed(), Errors: s.report.errors.Load(),
		Succeeded: s.dispatcher.Count(dispatcher.Deleted), Retried: s.dispatcher.Count(dispatcher.Retried),
		Discarded: s.dispatcher.Count(dispatcher.Discarded), Poisoned: s.dispatcher.Count(dispatcher.Poisoned),
		Kept: s.dispatcher.Count(dispatcher.Kept), Snoozed: s.dispatcher.Count(dispatcher.Snoozed), GivenBack: s.dispatcher.Count(dispatcher.GivenBack),
		Lost: s.dispatcher.Count(dispatcher.Lost), Unsettled: s.dispatcher.Count(dispatcher.Unsettled), Late: s.dispatcher.Late(),
		Visibility: s.dispatcher.Visibility(),
	}
	s.health.fill(&st)
	st.LastErrorAt, st.LastError = s.report.lastError()
	st.Loops, st.LoopsPeak, st.LoopsStarted = s.pool.counts()
	st.Running, st.Settling = s.dispatcher.Running()
	s.scaler.mu.Lock()
	st.Depth, st.DepthAt = s.scaler.depth, s.scaler.at
	s.scaler.mu.Unlock()
	return st
}
