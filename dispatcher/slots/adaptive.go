package slots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
)

// defaultStart is how many handlers may run at once before anything is known.
const defaultStart = 16

// AdaptiveOptions configure a [Adaptive]. Nil and the zero value mean the defaults.
type AdaptiveOptions struct {
	// Min is the lowest the limit gets. Defaults to 1.
	Min int

	// Max is the highest the limit gets. Defaults to 64.
	Max int

	// Start is what the limit is at first. Defaults to 16, or with Memory to Min, within Min…Max.
	Start int

	// Exhausted reports whether an error of a handler says that the dependency is exhausted, for errors that
	// do not match ErrExhausted, such as those of a client library. It is called concurrently, for errors only. Defaults to
	// none.
	Exhausted func(error) bool

	// Gradient makes the limit also follow how long handlers take: it shrinks when the same kind of job takes longer than
	// 1.5 times what it takes at half the limit. It is for dependencies that become slow and do not refuse, with jobs
	// of one kind whose durations differ by less than that from hour to hour. Defaults to false: only errors and
	// time-outs count.
	Gradient bool

	// Memory reads how much memory is in use: the limit shrinks while more than 0.8 of it is, and grows only if that
	// was not so for a minute. It is called when handlers begin and end, at most once in 100 ms, one call at a time.
	// [ContainerMemory] reads that of the container. Defaults to none.
	Memory func() (Memory, error)
}

func (o AdaptiveOptions) withDefaults() AdaptiveOptions {
	o.Min = cmp.Or(o.Min, 1)
	o.Max = cmp.Or(o.Max, max(dispatcher.DefaultConcurrency, o.Min))
	if o.Start == 0 {
		o.Start = min(max(defaultStart, o.Min), o.Max)
		if o.Memory != nil {
			o.Start = o.Min
		}
	}
	return o
}

func (o AdaptiveOptions) validate() error {
	if o.Min < 0 || o.Max < o.Min {
		return fmt.Errorf("adaptive limit: bounds %d…%d must be at least 1, and Max not below Min", o.Min, o.Max)
	}
	if o.Start < o.Min || o.Start > o.Max {
		return fmt.Errorf("adaptive limit: Start %d is outside %d…%d", o.Start, o.Min, o.Max)
	}
	return nil
}

// Adaptive is a bound on how many handlers run at once that follows how their dependency copes. Make one with [NewAdaptive] for each
// dependency. Give [Adaptive.Slots] and [Adaptive.Intercept] to every listener whose handlers use it. It is safe for concurrent use.
type Adaptive struct {
	options AdaptiveOptions // with defaults
	shared  *Shared

	current   atomic.Int64 // the limit; changed with mu held
	heldUntil atomic.Int64 // when slots are given again, in the nanoseconds of time.Since(made); 0 for now
	made      time.Time

	mu       sync.Mutex
	rule     rule           // guarded by mu
	running  int            // handlers, those included that their listeners have given up; guarded by mu
	begun    int64          // handlers so far; guarded by mu
	users    []*slots       // those whose listeners run; guarded by mu
	counts   AdaptiveCounts // guarded by mu
	last     change         // guarded by mu
	hold     hold           // guarded by mu
	memory   reading        // guarded by mu
	gradient gradient       // guarded by mu
	failure  error          // of the last hook that failed; guarded by mu
}

// call is one running handler.
type call struct {
	number int64 // of all calls, from 1
	began  time.Time
}

// NewAdaptive returns a limit. It returns an error if Min, Start, and Max are not in this order, or Min is below 1.
func NewAdaptive(o *AdaptiveOptions) (*Adaptive, error) {
	options := cmp.Or(o, &AdaptiveOptions{}).withDefaults()
	if err := options.validate(); err != nil {
		return nil, err
	}
	l := &Adaptive{made: time.Now(), options: options}
	l.rule.exact, l.rule.starting = float64(l.options.Start), l.options.Memory == nil && !l.options.Gradient
	l.current.Store(int64(l.options.Start))
	l.last = change{at: l.made, to: l.options.Start}
	l.shared = &Shared{slots: l.options.Start}
	return l, nil
}

// Intercept is an interceptor for the listeners that use the slots: it sees the results of handlers. It should be the last one,
// so that it sees those of the handlers themselves. A job whose handler has found the dependency exhausted comes again in
// 1 to 5 s, or when its error asks for by Retry, without an attempt: see the package's documentation.
func (l *Adaptive) Intercept(ctx context.Context, d dispatcher.Delivery, next func(context.Context) error) error {
	c := l.begin()
	said := silent // also if the handler panics
	var err error
	defer func() { l.end(c, &d, said, err) }()
	err = next(ctx)
	if said = l.judge(ctx, err); said == exhausted {
		return l.again(d, err)
	}
	return err
}

// begin notes that a handler starts.
func (l *Adaptive) begin() call {
	l.mu.Lock()
	l.running++
	l.begun++
	l.gradient.most = max(l.gradient.most, l.running)
	c := call{l.begun, time.Now()}
	l.mu.Unlock()
	l.lookAtMemory()
	return c
}

// end notes that a handler has returned. It comes before the slot is free.
func (l *Adaptive) end(c call, d *dispatcher.Delivery, said verdict, err error) {
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

// A job that found the dependency exhausted comes again after a time between minComeAgain and
// maxComeAgain, then after 1.5 times as long with each delivery that ended without an attempt, up
// to longestComeAgain. So a job that is always refused costs a bounded number of requests an hour.
const (
	minComeAgain     = time.Second
	maxComeAgain     = 5 * time.Second
	longestComeAgain = 5 * time.Minute
	comeAgainGrowth  = 1.5
)

// again returns the result of a delivery that found the dependency exhausted. Of a group only the
// items that found it so come again without an attempt.
func (l *Adaptive) again(d dispatcher.Delivery, err error) error {
	var group *dispatcher.GroupError
	if !errors.As(err, &group) {
		return comeAgain(d, err)
	}
	whole, own := dispatcher.ResultOf(err), dispatcher.ResultOf(group)
	if whole.Outcome != own.Outcome || whole.Explicit != own.Explicit || whole.Delay != own.Delay {
		return err // middleware has asked for something else for all items
	}
	changed := *group
	changed.Errors = maps.Clone(group.Errors)
	for item, err := range changed.Errors {
		if l.isExhausted(err) {
			changed.Errors[item] = comeAgain(d, err)
		}
	}
	return &changed
}

// comeAgain returns the result of a job that found the dependency exhausted: it has not failed. A
// request in its error stands. The delay of a Retry is a minimum.
func comeAgain(d dispatcher.Delivery, err error) error {
	r := dispatcher.ResultOf(err)
	if r.Outcome != dispatcher.Retried {
		return err
	}
	return dispatcher.NotRun(max(r.Delay, comeAgainDelay(d)), err)
}

func comeAgainDelay(d dispatcher.Delivery) time.Duration {
	spread := waiting.Jitter(string(d.ID), int(d.DequeueCount))
	first := float64(minComeAgain) + spread*float64(maxComeAgain-minComeAgain)
	unattempted := float64(max(d.DequeueCount-int64(d.Attempt), 0))
	longest := float64(longestComeAgain) * (0.8 + 0.2*spread)
	return time.Duration(min(first*math.Pow(comeAgainGrowth, unattempted), longest))
}

func (l *Adaptive) limit() int { return int(l.current.Load()) }

// isExhausted reports whether an error says that the dependency is exhausted. That of a group does
// if the error of an item does.
func (l *Adaptive) isExhausted(err error) bool {
	var group *dispatcher.GroupError
	if errors.As(err, &group) {
		for _, one := range group.Errors {
			if l.isExhausted(one) {
				return true
			}
		}
	}
	return errors.Is(err, ErrExhausted) || l.saysExhausted(err)
}

// saysExhausted asks Options.Exhausted. If it panics, the answer is no.
func (l *Adaptive) saysExhausted(err error) (yes bool) {
	if l.options.Exhausted == nil {
		return false
	}
	if failure := hook.Run(func() { yes = l.options.Exhausted(err) }); failure != nil {
		l.failed("Exhausted", failure)
		return false
	}
	return yes
}

// ErrExhausted says that what a handler depends on has no room for more at the moment: a 429 or 503 of a service, a
// connection pool without a free connection. See [Exhausted].
var ErrExhausted = errors.New("the dependency is exhausted")

// Exhausted returns an error that matches both err and [ErrExhausted]. A handler returns it when its dependency says that it
// is asked for too much. Of nil it is ErrExhausted itself.
func Exhausted(err error) error {
	if err == nil {
		return ErrExhausted
	}
	return fmt.Errorf("%w: %w", ErrExhausted, err)
}

// verdict is what the result of a handler says about its dependency.
type verdict int

const (
	silent    verdict = iota // nothing: it failed for another reason, was interrupted, or did not run to its end
	coped                    // it did what was asked
	timedOut                 // it took too long
	exhausted                // it said that it was asked for too much
)

// judge returns what an error says about the dependency. A job that is rejected or discarded for what it is was answered; a
// snooze may come before any call.
func (l *Adaptive) judge(ctx context.Context, err error) verdict {
	if err == nil {
		return coped
	}
	if l.isExhausted(err) {
		return exhausted
	}
	switch dispatcher.ResultOf(err).Outcome {
	case dispatcher.Discarded, dispatcher.Poisoned:
		return coped
	case dispatcher.Snoozed:
		return silent
	}
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, context.DeadlineExceeded):
		return silent // the worker stops, or has lost the message
	case cause != nil, errors.Is(err, context.DeadlineExceeded):
		return timedOut
	}
	return silent
}

// Slots returns slots for the option Slots of one listener. It runs as many handlers as the limit allows, together with the
// other listeners that use the limit: what there is goes to them in equal parts while several want more. With
// more listeners than the limit they take turns.
//
// Within are slots that the listener's handlers take too, such as a [Member]: then both bound them. Nil means
// none. The limit then takes the place of that member: only the result is passed to a listener.
func (l *Adaptive) Slots(within dispatcher.Slots) dispatcher.Slots {
	s := &slots{limit: l, own: l.shared.Member(nil), within: within}
	if within != nil && hook.IsNil(within) {
		s.err = fmt.Errorf("adaptive limit: the slots around it are a nil %T: pass nil for none", within)
	}
	return s
}

type slots struct {
	limit  *Adaptive
	own    *Member
	within dispatcher.Slots // nil for none
	err    error

	mu     sync.Mutex      // held during calls of own and within, so that what is taken of both is one
	freed  chan<- struct{} // nil while no listener runs; guarded by mu and limit.mu
	asking bool            // within knows that the listener waits; guarded by mu
}

var _ dispatcher.Slots = (*slots)(nil)

// Size implements [dispatcher.Slots]: it is the highest limit.
func (s *slots) Size() (int, error) {
	_, err := s.own.Size()
	err = errors.Join(s.err, err)
	size := s.limit.options.Max
	if s.within != nil && s.err == nil {
		most, werr := s.within.Size()
		size, err = min(size, most), errors.Join(err, werr)
	}
	return size, err
}

// Join implements [dispatcher.Slots].
func (s *slots) Join(freed chan<- struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	if s.freed != nil {
		return errors.New("these slots of an adaptive limit are in use by a listener that runs: call Slots for each listener")
	}
	if err := s.own.Join(freed); err != nil {
		return err
	}
	if s.within != nil {
		if err := s.within.Join(freed); err != nil {
			s.own.Leave()
			return err
		}
	}
	s.limit.use(s, freed)
	return nil
}

// Leave implements [dispatcher.Slots].
func (s *slots) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return
	}
	s.own.Leave()
	if s.within != nil {
		s.within.Leave()
	}
	s.asking = false
	s.limit.exit(s)
}

// Take implements [dispatcher.Slots].
func (s *slots) Take(r dispatcher.SlotRequest) (taken, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return 0, 0
	}
	if s.limit.isHeld() {
		s.withdraw()
		return 0, 0
	}
	// What is a tenth of the highest limit may be more than there are.
	r.Least = max(r.Least*s.limit.limit()/s.limit.options.Max, 1)
	taken, free = s.own.Take(r)
	if taken == 0 || s.within == nil {
		if s.asking { // the other slots were kept for a request that now waits for the limit
			s.asking = false
			s.within.Withdraw()
		}
		return taken, free
	}
	r.Most, r.Least, r.Bound = taken, min(r.Least, taken), min(r.Bound, s.limit.limit())
	got, free := s.within.Take(r)
	s.asking = got == 0
	if got < taken {
		s.own.Free(taken - got)
	}
	if got == 0 {
		s.own.Withdraw() // others that have room elsewhere may have them
	}
	return got, free
}

// Withdraw implements [dispatcher.Slots].
func (s *slots) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed != nil {
		s.withdraw()
	}
}

// withdraw says that nothing is asked for. Requires mu.
func (s *slots) withdraw() {
	s.own.Withdraw()
	if s.within != nil {
		s.asking = false
		s.within.Withdraw()
	}
}

// Free implements [dispatcher.Slots].
func (s *slots) Free(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return
	}
	s.own.Free(n)
	if s.within != nil {
		s.within.Free(n)
	}
}

// use notes that a listener uses the slots. It holds the mu of s.
func (l *Adaptive) use(s *slots, freed chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.freed = freed
	l.users = append(l.users, s)
	if l.isHeld() { // the timer may have been stopped when the last one left
		l.hold.timer.Reset(time.Duration(l.heldUntil.Load()) - time.Since(l.made))
	}
}

// exit notes that the slots need no place any more. It holds the mu of s.
func (l *Adaptive) exit(s *slots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.freed = nil
	l.users = slices.DeleteFunc(l.users, func(one *slots) bool { return one == s })
	if len(l.users) == 0 && l.hold.timer != nil {
		l.hold.timer.Stop()
	}
}

// wakeUsers lets all listeners ask again, after the limit has held back.
func (l *Adaptive) wakeUsers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellUsers()
}

// tellUsers is wakeUsers with mu held.
func (l *Adaptive) tellUsers() {
	for _, s := range l.users {
		waiting.Signal(s.freed, struct{}{})
	}
}
