package paired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/units"
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
	d.MinPoll = cmp.Or(d.MinPoll, time.Second)
	d.MaxPoll = cmp.Or(d.MaxPoll, max(15*time.Minute, d.MinPoll))
	d.Parallel = cmp.Or(d.Parallel, 16)
	d.Lease = cmp.Or(d.Lease, time.Minute)
	d.Grace = cmp.Or(d.Grace, 30*time.Second)
	d.Seed = cmp.Or(d.Seed, rand.Uint64())
	return d
}

func (o *SyphonOptions) validate() error {
	switch {
	case o.MinPoll < 0:
		return fmt.Errorf("paired: MinPoll %v is negative", o.MinPoll)
	case o.MaxPoll < o.MinPoll:
		return fmt.Errorf("paired: MaxPoll %v is shorter than MinPoll %v", o.MaxPoll, o.MinPoll)
	case o.Parallel < 0:
		return fmt.Errorf("paired: Parallel %d is negative", o.Parallel)
	case o.Lease < minLease || o.Lease > queue.MaxVisibility || o.Lease%time.Second != 0:
		return fmt.Errorf("paired: a Lease of %v: it must be whole seconds, %v to %v", o.Lease, minLease, queue.MaxVisibility)
	}
	return errors.Join(units.Wait("paired: MinPoll", o.MinPoll), units.Wait("paired: MaxPoll", o.MaxPoll), units.Wait("paired: Grace", o.Grace))
}

// Syphon brings messages home: it takes those that were diverted to the backlog queues, copies them to
// the primary queue, and then deletes them. Make one with [NewSyphon]; it is safe for concurrent use.
//
// It belongs beside the listeners of the primary queue, in one process or in several. Senders need none.
type Syphon struct {
	options SyphonOptions
	queues  []*Queue
	homes   *homes
	lanes   []*lane
	slots   chan struct{} // holds one for each message that is worked on

	copied    *keys // copied, but not deleted
	leftAlone *keys // left, and reported

	halted  chan struct{}
	halt    sync.Once
	mu      sync.Mutex
	state   SyphonState // all but Failing and Backlogs; guarded by mu
	polling int64       // dequeues in flight; guarded by mu
}

// NewSyphon returns a syphon for the backlog queues of these queues. Queues that share backlog queues need
// one syphon together: another leaves the messages that it cannot bring home for a while. It sends
// nothing, and [Queue.Pair] need not be called. It returns an error for invalid options, if there is no queue or
// a nil one, and if two queues have the same name.
func NewSyphon(qs []*Queue, o *SyphonOptions) (*Syphon, error) {
	if slices.Contains(qs, nil) {
		return nil, errors.New("paired: a queue of a syphon is nil")
	}
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
	s, err := newSyphon(primaries, backlogs, o)
	if err != nil {
		return nil, err
	}
	s.queues = slices.Clone(qs) // the caller may reuse its slice
	return s, nil
}

func newSyphon(primaries, backlogs []queue.Queue, o *SyphonOptions) (*Syphon, error) {
	s := &Syphon{options: o.withDefaults(), copied: newKeys(), leftAlone: newKeys(), halted: make(chan struct{})}
	if err := s.options.validate(); err != nil {
		return nil, err
	}
	s.slots = make(chan struct{}, s.options.Parallel)
	seed := strconv.FormatUint(s.options.Seed, 16)
	s.homes = newHomes(primaries, seed)
	switch {
	case len(primaries) == 0:
		return nil, errors.New("paired: a syphon without a queue")
	case len(s.homes.all) < len(primaries):
		return nil, errors.New("paired: two queues of a syphon have the same name: give each a syphon and backlog queues of its own")
	}
	for i, q := range backlogs {
		s.lanes = append(s.lanes, &lane{
			syphon: s, backlog: q, spread: seed + "/" + strconv.Itoa(i), soon: make(chan struct{}, 1),
			state: SyphonedBacklog{Queue: q.Name()},
		})
	}
	return s, nil
}

// Run brings messages home until ctx ends. It then takes no more, finishes those that it copies, gives
// the others back, and returns nil, or an error if requests were abandoned because Grace was over or because
// of [Syphon.Halt]. It is an error if it runs already. Failures of the queues do not end it.
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
	requests, hangUp := context.WithCancel(request.WithCause(context.WithoutCancel(ctx), request.CauseSyphon))
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
		s.mu.Lock()
		if s.polling+s.state.InHand > 0 {
			abandoned = errAbandoned
		}
		s.mu.Unlock()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Running {
		return errors.New("paired: the syphon runs already")
	}
	s.state.Running = true
	return nil
}

func (s *Syphon) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Running = false
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
	s.mu.Lock()
	s.state.LastError, s.state.LastErrorAt = err, time.Now()
	s.mu.Unlock()
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

// syphonHints tell the syphons of a queue that messages may have been diverted, so that they poll soon.
// They are hints: without them the messages come home later.
type syphonHints struct {
	mu       sync.Mutex
	syphons  []*Syphon // those that run; guarded by mu
	failures int       // receives in a row that failed; guarded by mu
	since    time.Time // the first of them; guarded by mu
}

func (h *syphonHints) add(s *Syphon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syphons = append(h.syphons, s)
}

func (h *syphonHints) remove(s *Syphon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syphons = slices.DeleteFunc(h.syphons, func(one *Syphon) bool { return one == s })
}

// diverted notes that this process put a message into a backlog queue.
func (h *syphonHints) diverted(backlog queue.Name) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.syphons {
		for _, l := range s.lanes {
			if l.backlog.Name() == backlog {
				l.wake()
			}
		}
	}
}

// received takes the result of a receive. When the primary queue is back after an outage in which sends of
// other processes may have failed over, there may be messages in every backlog queue. A
// receive that its caller gave up says nothing.
func (h *syphonHints) received(ctx context.Context, err error, interval time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		if h.failures > 1 && time.Since(h.since) >= interval/2 {
			for _, s := range h.syphons {
				s.wakeOthers(nil)
			}
		}
		h.failures = 0
	case ctx.Err() == nil && (errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrOutcomeUnknown)):
		if h.failures == 0 {
			h.since = time.Now()
		}
		h.failures++
	}
}

// SyphonState is what a [Syphon] does, and what it has done since [NewSyphon]. How many messages wait is told by
// [Queue.Backlog].
type SyphonState struct {
	// Running reports whether Run runs.
	Running bool `json:"running"`

	// Moved is the number of messages that were copied to the primary queue.
	Moved int64 `json:"moved"`

	// Doubtful is how many of them may be there twice: the outcome of the copy is unknown, or the
	// delete failed after it. It is an upper bound, but a kill is not in it: see
	// [SyphonOptions].Parallel.
	Doubtful int64 `json:"doubtful"`

	// Expired is the number of messages whose life ended while the syphon had them in hand. What expires
	// in a backlog queue is dropped by the service, as it would have been in the primary queue, and
	// nobody sees it.
	Expired int64 `json:"expired"`

	// Unreadable is the number of messages in backlog queues that are no records, are those of a newer
	// release, or belong into a queue to which the syphon brings nothing; Refused is the number of those
	// that the primary queue refuses as invalid or too large. They are left in their backlog queues,
	// hidden for a minute to an hour at a time. Each counts once, as long as fewer than 10,000 are
	// remembered.
	Unreadable int64 `json:"unreadable"`
	Refused    int64 `json:"refused"`

	// InHand is the number of messages that were taken and are not yet done with.
	InHand int64 `json:"in_hand"`

	// Failing is since when the primary queue accepts no copies, or the first of several; zero if it
	// does. The syphon then rests, and tries with one message at a time.
	Failing time.Time `json:"failing,omitzero"`

	// LastError is the last error, and LastErrorAt when it came. Nil and zero if there was none.
	LastError   error     `json:"-"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`

	// Requests is what was sent.
	Requests SyphonRequests `json:"requests"`

	// Backlogs are the backlog queues, in the order of the pair.
	Backlogs []SyphonedBacklog `json:"backlogs"`
}

// SyphonRequests counts the requests of a [Syphon]. Each is one transaction.
type SyphonRequests struct {
	Polls      int64 `json:"polls"`       // dequeues of backlog queues
	EmptyPolls int64 `json:"empty_polls"` // those that found nothing
	Copies     int64 `json:"copies"`      // puts to the primary queue
	Deletes    int64 `json:"deletes"`     // deletes from backlog queues
	GiveBacks  int64 `json:"give_backs"`  // updates that made a message visible again, now or later
}

// Total returns the number of all requests.
func (r SyphonRequests) Total() int64 { return r.Polls + r.Copies + r.Deletes + r.GiveBacks }

// SyphonedBacklog is a backlog queue as a [Syphon] sees it.
type SyphonedBacklog struct {
	Queue     queue.Name `json:"queue"`
	Polled    time.Time  `json:"polled,omitzero"` // start of the last poll; zero if there was none
	Empty     bool       `json:"empty"`           // whether the last poll that succeeded found nothing
	LastError error      `json:"-"`               // of the last poll; nil if it succeeded
}

// State returns what the syphon does and has done. It sends no request.
func (s *Syphon) State() SyphonState {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	if s.homes != nil {
		state.Failing = s.homes.failing()
	}
	for _, l := range s.lanes {
		state.Backlogs = append(state.Backlogs, l.state)
	}
	return state
}

// count adds to one of the numbers of the state.
func (s *Syphon) count(number *int64, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*number += n
}

// maxKeys bounds a set of messages.
const maxKeys = 10_000

// messageKey identifies a message of any queue.
type messageKey struct {
	queue queue.Name
	id    queue.ID
}

// keys is a bounded set of messages: the oldest go first. It is safe for concurrent use.
type keys struct {
	mu    sync.Mutex
	in    map[messageKey]struct{} // guarded by mu
	order []messageKey            // ring of them in the order of addition; guarded by mu
	next  int                     // of order, once it is full; guarded by mu
}

func newKeys() *keys { return &keys{in: make(map[messageKey]struct{})} }

func (k *keys) add(m messageKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, known := k.in[m]; known {
		return false
	}
	k.in[m] = struct{}{}
	if len(k.order) < maxKeys {
		k.order = append(k.order, m)
		return true
	}
	delete(k.in, k.order[k.next])
	k.order[k.next] = m
	k.next = (k.next + 1) % maxKeys
	return true
}

func (k *keys) has(m messageKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, is := k.in[m]
	return is
}
