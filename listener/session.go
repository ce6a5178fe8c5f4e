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
	"github.com/millrace/millrace/internal/nonblocking"
	"github.com/millrace/millrace/queue"
)

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
	poison     string      // where poison is moved, for the log
	idle       idleSetting // never nil

	settings    sync.Mutex // held while settings change
	concurrency int        // guarded by settings
	loops       Loops      // as requested; guarded by settings

	looping  context.Context // ends when dequeuing stops
	requests context.Context // of dequeues; ends after the grace period
	work     sync.WaitGroup  // loops and depth readings

	key         string       // key of the jitter of waits
	jitters     atomic.Int64 // jitters used so far
	errorSeries atomic.Int64 // series of consecutive errors so far, to give their waits different jitter
	failed      chan error   // what ends the run early; buffered, one

	health                      health
	requested                   atomic.Int64 // requests sent
	polls, emptyPolls, received atomic.Int64
}

// prepare checks the options and builds the session. It starts nothing.
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

// publish makes the session visible to State. It returns false if there was one before.
func (l *Listener[T]) publish(s *session[T]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		return false
	}
	l.session = s
	return true
}

// fail ends the run with an error. Only the first one counts.
func (s *session[T]) fail(err error) {
	nonblocking.Send(s.failed, err)
}

// polled counts a dequeue that succeeded.
func (s *session[T]) polled(messages int) {
	s.polls.Add(1)
	s.received.Add(int64(messages))
	if messages == 0 {
		s.emptyPolls.Add(1)
	}
}

// worked reports whether any dequeue has succeeded.
func (s *session[T]) worked() bool { return s.polls.Load() > 0 }
