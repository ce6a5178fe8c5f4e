package paired

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// SyphonOptions configure a [Syphon]. Nil and the zero value mean the defaults.
type SyphonOptions struct {
	// MinPoll and MaxPoll are how long a backlog queue waits for its next poll: MinPoll after the first
	// poll that found nothing, and then twice as long each time, up to MaxPoll and a tenth more. A queue
	// that this process diverted to, and all of them when one was found to have messages, are polled
	// after MinPoll. Defaults to 1 s and 15 min.
	MinPoll, MaxPoll time.Duration

	// Parallel is how many messages are brought home at a time, and how many may be in the primary queue
	// twice after a kill. Defaults to 16.
	Parallel int

	// Lease is how long messages are hidden in a backlog queue while they are brought home, in whole
	// seconds, at least 10 s. A process that is killed leaves up to 32 of each backlog queue hidden so
	// long. Defaults to 60 s.
	Lease time.Duration

	// Grace is how long requests in flight may take after the stop. Negative means not at all: they are
	// abandoned at once. Defaults to 30 s.
	Grace time.Duration

	// Seed makes the jitter of all waits repeatable. Instances must use different seeds. Defaults to a
	// random one.
	Seed uint64

	// OnError receives every error: of requests, and of messages that are left. It is called
	// concurrently and must not block. A panic in it hurts nothing. Defaults to none: [SyphonState] has the
	// last one.
	OnError func(error)

	// OnHome hears of every message that came home to the primary queue with this name, and after what delay it is
	// visible there, so that a program can wake workers that do not poll. It is called like OnError.
	// Defaults to none: such workers find it at the next event or safety poll.
	OnHome func(primary queue.Name, delay time.Duration)
}

// minLease leaves time for a copy and a delete within it.
const minLease = 10 * time.Second

func (o *SyphonOptions) withDefaults() SyphonOptions {
	var d SyphonOptions
	if o != nil {
		d = *o
	}
	defaultTo(&d.MinPoll, time.Second)
	defaultTo(&d.MaxPoll, max(15*time.Minute, d.MinPoll))
	defaultTo(&d.Parallel, 16)
	defaultTo(&d.Lease, time.Minute)
	defaultTo(&d.Grace, 30*time.Second)
	defaultTo(&d.Seed, rand.Uint64())
	return d
}

func defaultTo[T comparable](option *T, value T) {
	if *option == *new(T) {
		*option = value
	}
}

func (o *SyphonOptions) check() error {
	switch {
	case o.MinPoll < time.Millisecond:
		return fmt.Errorf("paired: MinPoll %v is too short: give it a unit, such as time.Second", o.MinPoll)
	case o.MaxPoll < o.MinPoll:
		return fmt.Errorf("paired: MaxPoll %v is shorter than MinPoll %v", o.MaxPoll, o.MinPoll)
	case o.Parallel < 0:
		return fmt.Errorf("paired: Parallel %d is negative", o.Parallel)
	case o.Lease < minLease || o.Lease > queue.MaxVisibility || o.Lease%time.Second != 0:
		return fmt.Errorf("paired: a Lease of %v: it must be whole seconds, %v to %v", o.Lease, minLease, queue.MaxVisibility)
	}
	return nil
}

// Syphon brings messages home: it takes those that were diverted to the backlog queues, copies them to
// the primary queue, and then deletes them. Make one with [NewSyphon]; it is safe for concurrent use.
//
// It belongs beside the listeners of the primary queue, in one process or in several. Senders need none.
type Syphon struct {
	options SyphonOptions
	bad     error // of the options
	queues  []*Queue
	homes   *homes
	lanes   []*lane
	slots   chan struct{} // holds one for each message that is worked on

	counts    syphonCounts
	copied    *keys // copied, but not deleted
	leftAlone *keys // left, and reported
	errs      lastError

	halted chan struct{}
	halt   sync.Once
	mu     sync.Mutex
	runs   bool // guarded by mu
}

// NewSyphon returns a syphon for the backlog queues of these queues. Queues that share backlog queues need
// one syphon together: another leaves the messages that it cannot bring home for a while. It sends
// nothing, and [Queue.Pair] need not be called. What is wrong is an error of [Syphon.Run]. A nil queue
// panics, because it is a mistake in the program.
func NewSyphon(o *SyphonOptions, qs ...*Queue) *Syphon {
	var primaries, backlogs []queue.Queue
	seen := make(map[queue.Name]bool)
	for _, q := range qs {
		primaries = append(primaries, q.primary)
		for _, b := range q.rotation.all {
			if name := b.queue.Name(); !seen[name] {
				seen[name] = true
				backlogs = append(backlogs, b.queue)
			}
		}
	}
	s := newSyphon(primaries, backlogs, o)
	s.queues = qs
	for _, q := range qs {
		if s.bad == nil {
			s.bad = q.bad
		}
	}
	return s
}

func newSyphon(primaries, backlogs []queue.Queue, o *SyphonOptions) *Syphon {
	s := &Syphon{options: o.withDefaults(), copied: newKeys(), leftAlone: newKeys(), halted: make(chan struct{})}
	if s.bad = s.options.check(); s.bad != nil {
		return s
	}
	s.slots = make(chan struct{}, s.options.Parallel)
	seed := strconv.FormatUint(s.options.Seed, 16)
	s.homes = newHomes(primaries, seed)
	switch {
	case len(primaries) == 0:
		s.bad = errors.New("paired: a syphon without a queue")
	case len(s.homes.all) < len(primaries):
		s.bad = errors.New("paired: two queues of a syphon have the same name: give each a syphon and backlog queues of its own")
	}
	for i, q := range backlogs {
		s.lanes = append(s.lanes, newLane(s, q, seed+"/"+strconv.Itoa(i)))
	}
	return s
}

// Run brings messages home until ctx ends. It then takes no more, finishes those that it copies, gives
// the others back, and returns nil, or an error if requests were abandoned because Grace was over or because
// of [Syphon.Halt]. It is an error if the options are invalid, or if it runs already. Failures of the queues do not end it.
func (s *Syphon) Run(ctx context.Context) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	select {
	case <-s.halted: // or a lane could poll before it hears of it
		return nil
	default:
	}
	for _, q := range s.queues {
		q.syphons.add(s)
		defer q.syphons.remove(s)
	}
	looping, stop := context.WithCancel(ctx)
	defer stop()
	// Requests outlive the stop: an abandoned dequeue hides its messages for a whole lease, and an
	// abandoned copy may be a duplicate.
	requests, hangUp := context.WithCancel(queue.WithCause(context.WithoutCancel(ctx), queue.CauseSyphon))
	defer hangUp()
	ended := make(chan struct{})
	var abandoned error // set before watch is done
	var watch, lanes sync.WaitGroup
	watch.Go(func() {
		select {
		case <-looping.Done():
		case <-s.halted:
		}
		stop()
		if s.options.Grace > 0 {
			over := time.NewTimer(s.options.Grace)
			defer over.Stop()
			select {
			case <-over.C:
			case <-s.halted:
			case <-ended:
				return
			}
		}
		if s.counts.polling.Load()+s.counts.inHand.Load() > 0 {
			abandoned = errAbandoned
		}
		hangUp()
	})
	for _, l := range s.lanes {
		lanes.Go(func() { l.run(looping, requests) })
	}
	lanes.Wait()
	close(ended)
	watch.Wait()
	return abandoned
}

var errAbandoned = errors.New("paired: the syphon stopped with requests in flight: what it had in hand comes up again when its lease ends, and may then be in the primary queue twice")

func (s *Syphon) begin() error {
	if s.bad != nil {
		return s.bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runs {
		return errors.New("paired: the syphon runs already")
	}
	s.runs = true
	return nil
}

func (s *Syphon) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs = false
}

// Halt makes Run return as soon as possible: requests in flight are abandoned, and what it has in hand
// comes up again when the lease ends. It does not wait, and may be called at any time; later Runs return
// at once.
func (s *Syphon) Halt() { s.halt.Do(func() { close(s.halted) }) }

// wakeOthers lets the other lanes poll soon.
func (s *Syphon) wakeOthers(except *lane) {
	for _, l := range s.lanes {
		if l != except {
			l.wake()
		}
	}
}

func (s *Syphon) report(err error) {
	s.errs.set(err)
	if f := s.options.OnError; f != nil {
		hook.Run(func() { f(err) })
	}
}

// home notes that a primary queue accepted a message, and says so: sends return to it.
func (s *Syphon) home(name queue.Name, delay time.Duration) {
	for _, q := range s.queues {
		if q.Name() == name {
			q.failover.end(attempt{primary: true}, accepted, nil)
			q.report()
		}
	}
	if f := s.options.OnHome; f != nil {
		hook.Run(func() { f(name, delay) })
	}
}
