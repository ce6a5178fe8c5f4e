package adaptive

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/pool"
)

// Limit is a bound on how many handlers run at once that follows how their dependency copes. Make one with [New] for each
// dependency. Give [Limit.Slots] and [Limit.Intercept] to every listener whose handlers use it. It is safe for concurrent use.
type Limit struct {
	options Options // with defaults
	err     error   // what is wrong with them
	pool    *pool.Pool

	current   atomic.Int64 // the limit; changed with mu held
	heldUntil atomic.Int64 // when slots are given again, in the nanoseconds of time.Since(made); 0 for now
	made      time.Time

	mu       sync.Mutex
	rule     rule     // guarded by mu
	running  int      // handlers, those included that their listeners have given up; guarded by mu
	begun    int64    // handlers so far; guarded by mu
	users    []*slots // those whose listeners run; guarded by mu
	places   int      // made by Slots, or joined, and not left: the pool has one slot for each; guarded by mu
	counts   Counts   // guarded by mu
	last     change   // guarded by mu
	hold     hold     // guarded by mu
	memory   reading  // guarded by mu
	gradient gradient // guarded by mu
	failure  error    // of the last hook that failed; guarded by mu
}

// call is one running handler.
type call struct {
	number int64 // of all calls, from 1
	began  time.Time
}

// New returns a limit. Run of a listener that uses it reports invalid options.
func New(o *Options) *Limit {
	var c Options
	if o != nil {
		c = *o
	}
	l := &Limit{made: time.Now()}
	if l.options, l.err = c.withDefaults(); l.err != nil {
		l.options, _ = Options{}.withDefaults()
	}
	l.rule.exact, l.rule.starting = float64(l.options.Start), l.options.Memory == nil && !l.options.Gradient
	l.current.Store(int64(l.options.Start))
	l.last = change{at: l.made, to: l.options.Start}
	l.pool = pool.New(&pool.Options{Slots: l.options.Start})
	return l
}

// Intercept is an interceptor for the listeners that use the slots: it sees the results of handlers. It should be the last one,
// so that it sees those of the handlers themselves. A job whose handler has found the dependency exhausted comes again in
// 1 to 5 s, or when its error asks for by Retry, without an attempt: see the package's documentation.
func (l *Limit) Intercept(ctx context.Context, d dispatcher.Delivery, next func(context.Context) error) error {
	c := l.begin()
	said := silent // also if the handler panics
	var err error
	defer func() { l.end(c, &d, said, err) }()
	err = next(ctx)
	if said = l.judge(ctx, err); said == exhausted {
		return again(d, err)
	}
	return err
}

// begin notes that a handler starts.
func (l *Limit) begin() call {
	c := l.count()
	l.lookAtMemory()
	return c
}

func (l *Limit) count() call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running++
	l.begun++
	l.gradient.most = max(l.gradient.most, l.running)
	return call{l.begun, time.Now()}
}

// end notes that a handler has returned. It comes before the slot is free.
func (l *Limit) end(c call, d *dispatcher.Delivery, said verdict, err error) {
	l.lookAtMemory()
	l.mu.Lock()
	defer l.mu.Unlock()
	used := 2*l.running >= l.limit()
	l.running--
	switch said {
	case coped:
		l.counts.Coped++
		l.endHold()
		if l.options.Gradient {
			l.sample(c, d.Kind, time.Since(c.began))
		} else {
			l.succeeded(used)
		}
	case timedOut:
		l.counts.TimedOut++
		l.cut(c, timedOut, d, nil)
	case exhausted:
		l.counts.Exhausted++
		l.cut(c, exhausted, d, err)
	case silent:
		l.counts.Other++
	}
}

// A job that found the dependency exhausted comes again after a time within these bounds.
const (
	minComeAgain = time.Second
	maxComeAgain = 5 * time.Second
)

// maxFree is how many deliveries of a message, for each of its attempts, may end without one because the dependency was
// exhausted. A job that exhausts it by itself must become poison at some time.
const maxFree = 20

// again returns the result of a job that found the dependency exhausted: it has not failed. What its error asks for
// itself stands, and so does the result of a group, which says what is done.
func again(d dispatcher.Delivery, err error) error {
	r := dispatcher.ResultOf(err)
	group := (*dispatcher.GroupError)(nil)
	if r.Outcome != dispatcher.Retried || d.DequeueCount >= maxFree*int64(d.Attempt) || errors.As(err, &group) {
		return err
	}
	delay := r.Delay
	if !r.Explicit {
		spread := waiting.Jitter(string(d.ID), int(d.DequeueCount))
		delay = minComeAgain + time.Duration(spread*float64(maxComeAgain-minComeAgain))
	}
	return dispatcher.Postpone(delay, err)
}

func (l *Limit) limit() int { return int(l.current.Load()) }

// saysExhausted asks Options.Exhausted. If it panics, the answer is no.
func (l *Limit) saysExhausted(err error) (yes bool) {
	if l.options.Exhausted == nil {
		return false
	}
	if failure := hook.Run(func() { yes = l.options.Exhausted(err) }); failure != nil {
		l.failed("Exhausted", failure)
		return false
	}
	return yes
}
