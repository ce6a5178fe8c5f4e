package paired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// ErrBothDown means that neither the primary queue nor a backlog queue accepted a message. The error is also
// a [queue.ErrUnavailable]: sending again later may succeed. If it is a [queue.ErrOutcomeUnknown] too, one of them
// may have accepted the message.
var ErrBothDown = errors.New("neither the primary queue nor a backlog queue accepts messages")

// ErrNotPaired means that a message was sent before [Queue.Pair] had succeeded.
var ErrNotPaired = errors.New("the queue is not paired yet")

// errLimit is the cause of a context that ended because a primary queue that fails took too long.
var errLimit = errors.New("the limit of a request to a primary queue that fails")

// Enqueue sends a message to the primary queue, or in an outage to a backlog queue. The returned message says in
// Queue where it is, and in MaybeTwice whether the other may have it as well. [Queue.Lookup] finds the queue, in
// which it can be deleted with its lease as long as nobody has taken it.
//
// A message that a busy primary queue refuses is sent again after 10 to 15 s, until ctx leaves too little time for
// that; so is one that all backlog queues refused. Meanwhile other messages wait: see the package comment. A request to the primary queue may take no longer than the
// failover interval, and leaves time before the deadline of ctx for a backlog queue. A message whose attempts have
// failed for the failover interval, or whose deadline is near, goes to a backlog queue even if the primary queue
// accepts others. A call with a number of repeats, see metered.WithRepeats, continues those before it with the same text.
//
// A text that is too large for the record of a backlog queue, which is no text that a producer sends, goes to
// the primary queue alone.
//
// An error is one of the primary queue, as without pairing, unless it is [ErrBothDown] or
// [ErrNotPaired].
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	err := cmp.Or(driver.CheckEnqueue(o), driver.CheckText(text))
	switch {
	case err != nil:
	case !q.paired.Load():
		err = &queue.Error{Err: ErrNotPaired, Hint: "call Pair, and send when it has returned nil"}
	}
	if err != nil {
		return queue.Message{}, driver.Explain(err, "enqueue", q.Name(), "")
	}
	s := &send{q: q, text: text, options: o}
	defer q.report()
	// The text for a backlog queue, and why it does not fit into one.
	r := record{primary: s.q.Name()}
	if s.options != nil {
		r.delay = s.options.Delay
	}
	sealed := r.seal(s.text)
	unfit := driver.CheckRequest(sealed, 0)
	var busyErr error                  // of the time before
	handBack := waiting.HandsBack(ctx) // another queue may take the message
	for n := 0; ; n++ {
		if ctx.Err() != nil {
			return queue.Message{}, s.failed(nothingSent(ctx, s.q.Name()), busyErr)
		}
		probe := false
		if !handBack {
			if probe, err = s.enter(ctx, n > 0 || request.Repeats(ctx) > 0); err != nil {
				return queue.Message{}, s.failed(err, busyErr)
			}
		}
		sent, v, err := s.once(ctx, probe, sealed, unfit)
		switch {
		case err == nil:
			return sent, nil
		case ctx.Err() != nil || v != busy || handBack:
			return queue.Message{}, s.failed(err, busyErr)
		case !s.rest(ctx, n):
			return queue.Message{}, s.failed(fmt.Errorf("%w; %w", err, serviceerror.Ended(ctx)), nil)
		}
		busyErr = err
	}
}

// enter waits until a message may be sent to a primary queue that was busy, and reports whether it is the
// probe. It fails when too little of the sender's time is left.
func (s *send) enter(ctx context.Context, repeated bool) (probe bool, err error) {
	if !s.q.gate.holds() {
		return false, nil
	}
	waits, cancel := s.q.failover.timely(ctx, repeated)
	defer cancel()
	probe, ok := s.q.gate.enter(waits)
	switch {
	case ok:
		return probe, nil
	case ctx.Err() != nil:
		return false, nothingSent(ctx, s.q.Name())
	}
	_, last := s.q.failover.failing()
	return false, &queue.Error{Op: "enqueue", Queue: s.q.Name(), Kind: queue.ErrThrottled, Err: last,
		Detail: "the queue is busy, and accepts earlier messages first: nothing was sent in time",
		Hint:   "send less, or share the load among several queues"}
}

// rest lets a message that was refused wait for 10 to 15 s. It reports false when its sender's time is over: if
// too little is left to send it again, it is not.
func (s *send) rest(ctx context.Context, n int) bool {
	wait := busyWait + time.Duration(waiting.Jitter(s.text, n)*float64(busyWait/2))
	if !s.q.failover.leaves(ctx, wait) {
		<-ctx.Done()
		return false
	}
	return waiting.For(wait, ctx.Done())
}

// send is one message on its way.
type send struct {
	q       *Queue
	text    string
	options *queue.EnqueueOptions

	primaryErr error // of the last attempt at the primary queue that failed; nil if there was none
	unknown    bool  // whether a queue may have accepted it without saying so
}

// once sends the message, perhaps as the probe of a busy queue, to the primary queue, to a backlog queue, or
// to both. The verdict is that of the last of them that was asked.
func (s *send) once(ctx context.Context, probe bool, sealed string, unfit error) (sent queue.Message, v verdict, err error) {
	v, divert := refused, true
	a := s.q.failover.begin(unfit == nil)
	if a.primary {
		sent, v, divert, err = s.try(ctx, a)
	}
	s.q.gate.left(probe, a.begun, v, divert)
	if a.primary {
		divert = divert || v == failed && unfit == nil && s.overdue(ctx, a.begun)
	}
	switch {
	case !divert, err != nil && ctx.Err() != nil:
		return sent, v, err
	case unfit != nil:
		return queue.Message{}, v, s.bothDown(queue.Name{}, unfit)
	}
	return s.divert(ctx, sealed)
}

// overdue reports whether a message that has failed goes to a backlog queue although the primary queue accepts
// others: it has failed for the failover interval, or its sender may have no time for another attempt. The waits
// between the attempts of a producer double, up to retry.MaxWait, each up to a quarter longer.
func (s *send) overdue(ctx context.Context, begun time.Time) bool {
	failing := time.Since(s.q.failing.since(s.text, begun, request.Repeats(ctx) > 0))
	return failing >= s.q.options.FailoverInterval || !s.q.failover.leaves(ctx, min(failing, retry.MaxWait)*5/4)
}

// failing remembers since when messages have failed, by the hashes of their texts, because each attempt of a
// producer is a call of its own. Two generations bound it. A message that is forgotten is diverted later.
type failing struct {
	seed maphash.Seed

	mu           sync.Mutex
	young, older map[uint64]time.Time // guarded by mu
}

// maxFailing is how many failing messages are remembered at least.
const maxFailing = 10_000

// since returns since when a message has failed: since this attempt began, unless it repeats others.
func (f *failing) since(text string, begun time.Time, repeated bool) time.Time {
	h := maphash.String(f.seed, text)
	f.mu.Lock()
	defer f.mu.Unlock()
	if first := cmp.Or(f.young[h], f.older[h]); repeated && !first.IsZero() {
		begun = first
	}
	if f.young == nil || len(f.young) >= maxFailing {
		f.older, f.young = f.young, make(map[uint64]time.Time)
	}
	f.young[h] = begun
	return begun
}

// failed returns the error of a send, and counts it. If nothing was sent since a queue was busy, it
// says that too.
func (s *send) failed(err, busyErr error) error {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	if busyErr != nil && ended && !errors.Is(err, queue.ErrOutcomeUnknown) {
		err = fmt.Errorf("%w; %w", busyErr, err)
	}
	if errors.Is(err, ErrBothDown) {
		s.q.failover.count(false, false)
	}
	if s.unknown && !errors.Is(err, queue.ErrOutcomeUnknown) {
		return fmt.Errorf("%w; an earlier request may have taken effect: %w", err, queue.ErrOutcomeUnknown)
	}
	return err
}

// nothingSent returns the error of a context that had ended before.
func nothingSent(ctx context.Context, name queue.Name) error {
	return &queue.Error{Op: "enqueue", Queue: name, Detail: "nothing was sent", Err: serviceerror.Ended(ctx)}
}

func (s *send) try(ctx context.Context, a attempt) (sent queue.Message, v verdict, divert bool, err error) {
	limited, cancel := a.bound(ctx)
	defer cancel()
	sent, err = s.q.primary.Enqueue(limited, s.text, s.options)
	if errors.Is(err, queue.ErrLimited) && limited != ctx && !a.probe { // by our limit, perhaps: nothing was sent
		sent, err = s.q.primary.Enqueue(ctx, s.text, s.options)
	}
	err = cutShort(limited, ctx, err, s.q.Name())
	v = judge(ctx, err)
	divert = s.q.failover.end(a, v, err)
	if err != nil {
		s.primaryErr = err
		s.unknown = s.unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		s.q.watch()
		return queue.Message{}, v, divert, err
	}
	if sent.Queue == (queue.Name{}) {
		sent.Queue = s.q.Name()
	}
	sent.MaybeTwice = sent.MaybeTwice || s.unknown
	return sent, v, false, nil
}

// bound returns the context of an attempt. It leaves time for a backlog queue, but takes half of what the
// sender has; a probe takes no more than that.
func (a attempt) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := a.limit
	if deadline, ok := ctx.Deadline(); ok && a.reserve > 0 {
		left := time.Until(deadline)
		most := max(left-a.reserve, left/2)
		if a.probe {
			most = left / 2
		}
		limit = min(cmp.Or(limit, most), most)
	}
	if limit == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, errLimit)
}

// cutShort rewrites the error of a request that our limit ended: the end is not the caller's.
func cutShort(limited, ctx context.Context, err error, name queue.Name) error {
	if err == nil || ctx.Err() != nil || !errors.Is(context.Cause(limited), errLimit) || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &queue.Error{Op: "enqueue", Queue: name, Kind: queue.ErrOutcomeUnknown, Detail: "the primary queue fails, and has not answered in time"}
	if !errors.Is(err, queue.ErrOutcomeUnknown) {
		e.Kind, e.Detail = queue.ErrUnavailable, "the primary queue fails, and nothing was sent in time"
	}
	return e
}

// divert sends the message to a backlog queue, and if that fails to another one. The verdict is that of the
// last one.
func (s *send) divert(ctx context.Context, sealed string) (queue.Message, verdict, error) {
	tried := make(map[*backlog]bool, 1)
	var at queue.Name
	var last error
	v := refused
	for ctx.Err() == nil {
		b := s.q.rotation.choose(tried)
		if b == nil {
			break
		}
		sent, err := b.queue.Enqueue(ctx, sealed, &queue.EnqueueOptions{TTL: driver.TTL(s.options)})
		v = judge(ctx, err)
		s.q.rotation.ended(b, v, err)
		if err == nil {
			s.q.failover.count(true, s.unknown)
			s.q.syphons.diverted(b.queue.Name())
			return s.diverted(b, sent), v, nil
		}
		at, last = b.queue.Name(), err
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			s.unknown = true
			s.q.failover.unanswered()
		}
		if v == refused { // by every other as well, or the sender has given up
			break
		}
	}
	if last == nil && s.primaryErr == nil {
		return queue.Message{}, refused, nothingSent(ctx, s.q.Name())
	}
	return queue.Message{}, v, s.bothDown(at, last)
}

func (s *send) diverted(b *backlog, sent queue.Message) queue.Message {
	sent.Text = s.text
	sent.Queue = b.queue.Name()
	sent.MaybeTwice = s.unknown
	if s.options != nil && !sent.Inserted.IsZero() {
		sent.Until = sent.Inserted.Add(s.options.Delay)
	}
	return sent
}

// bothDown returns the error of a message that no queue has accepted.
func (s *send) bothDown(at queue.Name, last error) error {
	since, known := s.q.failover.failing()
	e := &bothDownError{primaryErr: s.primaryErr, known: known, since: since, backlog: at, backlogErr: last, unknown: s.unknown}
	return &queue.Error{Op: "enqueue", Queue: s.q.Name(), Kind: queue.ErrUnavailable, Err: e,
		Hint: "send it again later"}
}

// bothDownError says why no queue accepted a message.
type bothDownError struct {
	primaryErr error      // of this message; nil if it was not sent there
	known      error      // of the newest message that was
	since      time.Time  // of the failover
	backlog    queue.Name // the last one that was tried
	backlogErr error
	unknown    bool
}

func (e *bothDownError) Error() string {
	primary := cmp.Or(e.primaryErr, e.known)
	text := fmt.Sprintf("%v; the primary queue, since %s: %v", ErrBothDown, e.since.UTC().Format(time.RFC3339), primary)
	if e.backlogErr != nil {
		text += fmt.Sprintf("; backlog queue %v: %v", e.backlog, e.backlogErr)
	}
	if e.unknown && !errors.Is(e.primaryErr, queue.ErrOutcomeUnknown) && !errors.Is(e.backlogErr, queue.ErrOutcomeUnknown) {
		text += "; an earlier request may have taken effect"
	}
	return text
}

// Unwrap returns what happened to this message. What happened to others does not make its outcome unknown.
func (e *bothDownError) Unwrap() []error {
	errs := []error{ErrBothDown}
	for _, err := range []error{e.primaryErr, e.backlogErr} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	if e.unknown {
		errs = append(errs, queue.ErrOutcomeUnknown)
	}
	return errs
}

const (
	// busyWait is how long a busy service is left alone.
	busyWait = 10 * time.Second

	// failedRest is how long a backlog queue that failed is left out.
	failedRest = time.Minute
)

type backlog struct {
	queue  queue.Queue
	suffix string       // such as "-backlog-07"
	state  BacklogState // guarded by rotation.mu
}

// rotation chooses among the backlog queues.
type rotation struct {
	all []*backlog

	mu       sync.Mutex
	requests int64 // sent to the secondary account; guarded by mu
}

// choose returns a random one of the backlog queues that do not rest and were not tried. If all rest and
// none was tried, it is the one that rests for the shortest time still: there is nothing better to do with
// the message. Nil means that there is none left. What it returns counts as tried and as a request.
func (r *rotation) choose(tried map[*backlog]bool) *backlog {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ready []*backlog
	soonest := r.all[0]
	now := time.Now()
	for _, b := range r.all {
		if !tried[b] && !now.Before(b.state.RestsUntil) {
			ready = append(ready, b)
		}
		if b.state.RestsUntil.Before(soonest.state.RestsUntil) {
			soonest = b
		}
	}
	var chosen *backlog
	switch {
	case len(ready) > 0:
		chosen = ready[rand.IntN(len(ready))]
	case len(tried) == 0:
		chosen = soonest
	default:
		return nil
	}
	tried[chosen] = true
	r.requests++
	return chosen
}

// ended takes the result of a send to a backlog queue. One that failed rests, unless it is the message's or
// the sender's fault, or that of a limit of the program.
func (r *rotation) ended(b *backlog, v verdict, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch v {
	case accepted:
		b.state.Accepted++
		b.state.RestsUntil, b.state.LastError = time.Time{}, nil
	case refused, limited:
	default:
		rest := failedRest
		if errors.Is(err, queue.ErrThrottled) {
			rest = busyWait
		}
		b.state.Failed++
		b.state.RestsUntil, b.state.LastError = time.Now().Add(rest), err
	}
}

// verified takes the result of looking at a backlog queue: one that is there rests no longer.
func (r *rotation) verified(b *backlog, err error) {
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		b.state.RestsUntil, b.state.LastError = time.Time{}, nil
	}
}

// request counts a request to the secondary account.
func (r *rotation) request() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
}
