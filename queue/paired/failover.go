package paired

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// Status is where the sends of a [Queue] go.
type Status int

// The statuses.
const (
	// Healthy: sends go to the primary queue, and the last one that was answered succeeded.
	Healthy Status = iota

	// Failing: sends go to the primary queue and fail; the failover interval runs.
	Failing

	// FailedOver: sends go to the backlog queues, and now and then one to the primary queue to probe it.
	FailedOver
)

// String returns the status in words, such as "failed over".
func (s Status) String() string {
	if s < Healthy || s > FailedOver {
		return "unknown"
	}
	return [...]string{Healthy: "healthy", Failing: "failing", FailedOver: "failed over"}[s]
}

// MarshalText returns [Status.String], for JSON and logs.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// verdict is what the response to a send says of the primary queue.
type verdict int

const (
	accepted verdict = iota // it works
	failed                  // it counts: unavailable, or no response
	busy                    // it is throttled: it is waited for, and never failed over
	refused                 // the message is at fault, or its sender gave up: says nothing of the queue
	limited                 // a limit of the program: nothing was sent, which says nothing of the queue
	denied                  // anything else, such as unauthorized: never failed over
)

// judge returns the verdict of an error of the primary queue. The context is that of the caller.
func judge(ctx context.Context, err error) verdict {
	switch {
	case err == nil:
		return accepted
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge):
		return refused
	case ctx.Err() != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, queue.ErrOutcomeUnknown): // nothing was sent
		return refused
	case errors.Is(err, queue.ErrLimited):
		return limited
	case errors.Is(err, queue.ErrUnauthorized), errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrQueueBeingDeleted):
		return denied
	case errors.Is(err, queue.ErrThrottled):
		return busy
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrOutcomeUnknown):
		return failed
	}
	return denied
}

// attempt is one request to the primary queue, or none.
type attempt struct {
	primary bool          // whether there is one
	probe   bool          // whether it is the one probe of the time
	begun   time.Time     // when the decision was made
	epoch   int           // of the failover when it began
	limit   time.Duration // how long it may take; 0 means as long as the caller and the queue let it
	reserve time.Duration // what it leaves of the caller's time for a backlog queue; 0 if that is no alternative
}

// The limits of requests to a primary queue that fails. They leave a producer time for a backlog queue.
const (
	minTry   = time.Second
	probeTry = 10 * time.Second
)

// failover decides for one primary queue where sends go. All its time is monotonic.
type failover struct {
	interval time.Duration // negative: at once
	probe    time.Duration

	mu       sync.Mutex
	answered time.Time      // when the primary queue last accepted a message; guarded by mu
	usual    time.Duration  // how long it takes to accept one, on average; guarded by mu
	state    State          // all but Failures and the backlog queues; guarded by mu
	outage   Outage         // the failures in a row, and the outage if it is one; guarded by mu
	onTrial  bool           // whether the last return still lacks a send that succeeded; guarded by mu
	epoch    int            // failovers and returns so far; guarded by mu
	again    waiting.Probe  // of the primary queue; guarded by mu
	changed  waiting.Change // of the status or a probe; guarded by mu
	watching bool           // whether a goroutine reads properties; guarded by mu
	closed   bool           // guarded by mu
	reports  reports        // guarded by mu
}

// begin decides where a send goes first. One that does not fit into a backlog queue always goes to the
// primary queue. What begin returns must be ended.
func (f *failover) begin(fits bool) attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := attempt{primary: true, begun: time.Now(), epoch: f.epoch}
	if fits {
		a.reserve = minTry
	}
	switch {
	case f.state.Status == Healthy && f.onTrial:
		a.limit = probeTry
	case f.state.Status != FailedOver && f.interval > 0:
		a.limit = max(f.interval, minTry)
	case f.state.Status == FailedOver && fits:
		a.limit = probeTry
		a.primary = f.beginProbe(time.Now())
		a.probe = a.primary
	}
	return a
}

// least returns how much time must be left for a request: what one usually takes, at least minTry. With less
// the message may be accepted after its sender has given up. Requires mu.
func (f *failover) least() time.Duration { return max(minTry, f.usual) }

// leaves reports whether the caller's deadline leaves this time for waiting, and time for a request.
func (f *failover) leaves(ctx context.Context, wait time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if !ok {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Until(deadline) >= wait+f.least()
}

// timely returns a context for waiting that leaves time for a request. The first request of a message waits for
// half of a time that is too short.
func (f *failover) timely(ctx context.Context, repeated bool) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	least := f.least()
	if !repeated {
		least = min(least, time.Until(deadline)/2)
	}
	return context.WithDeadline(ctx, deadline.Add(-least))
}

// beginProbe starts a probe if one is due. Requires mu.
func (f *failover) beginProbe(now time.Time) bool {
	if !f.again.Begin(now) {
		return false
	}
	f.state.Probes++
	f.changed.Announce()
	return true
}

// end takes the verdict of an attempt at the primary queue, and reports whether the message goes to a
// backlog queue.
func (f *failover) end(a attempt, v verdict, err error) (divert bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if a.probe {
		f.endProbe(now, v)
	}
	if errors.Is(err, queue.ErrOutcomeUnknown) {
		f.state.Unanswered++
	}
	switch v {
	case accepted:
		f.onTrial = false
		f.state.LastError = nil
		f.answered = now
		if !a.begun.IsZero() {
			f.usual += (now.Sub(a.begun) - f.usual) / 8
		}
		switch f.state.Status {
		case Failing:
			f.state.Status, f.state.Since, f.outage = Healthy, now, Outage{}
		case FailedOver:
			f.goHome(now)
		}
		return false
	case refused:
		return false
	case failed:
		f.state.LastError = err
		// A failure of before the last return tells nothing of the time since.
		if f.state.Status != FailedOver && a.epoch == f.epoch {
			f.fail(a.begun, now, err)
		}
	case busy, denied:
		f.state.LastError = err
	}
	return f.state.Status == FailedOver
}

// endProbe lets the next probe begin in due time: at once if this one told nothing. Requires mu.
func (f *failover) endProbe(now time.Time, v verdict) {
	f.again.End()
	if v != refused {
		f.again.Pause(now.Add(f.probe))
	}
	f.changed.Announce()
}

// fail takes a failure that counts, of a queue that is not failed over. The interval begins with the oldest
// request that failed, or with the last success if that came later. Requires mu.
func (f *failover) fail(begun, now time.Time, err error) {
	if begun.Before(f.answered) {
		begun = f.answered
	}
	if f.state.Status == Healthy {
		f.state.Status, f.state.Since = Failing, now
		f.outage = Outage{Queue: f.state.Queue, FirstFailure: begun}
	}
	if begun.Before(f.outage.FirstFailure) {
		f.outage.FirstFailure = begun
	}
	f.outage.Failures++
	f.outage.Err = err
	if f.interval > 0 && !f.onTrial && now.Sub(f.outage.FirstFailure) < f.interval {
		return
	}
	f.state.Status, f.state.Since = FailedOver, now
	f.outage.FailedOver = now
	f.epoch++
	f.state.Failovers++
	f.again.Pause(now.Add(f.probe))
	f.reports.add(f.outage)
	f.changed.Announce()
}

// goHome ends the outage. Requires mu.
func (f *failover) goHome(now time.Time) {
	f.outage.Returned = now
	f.reports.add(f.outage)
	f.state.Status, f.state.Since, f.outage = Healthy, now, Outage{}
	f.epoch++
	f.changed.Announce()
}

// beginWatch reports whether the caller is to start the goroutine that reads properties, and adds it to all.
func (f *failover) beginWatch(all *sync.WaitGroup) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Status != FailedOver || f.watching || f.closed {
		return false
	}
	f.watching = true
	all.Add(1)
	return true
}

// beginReading starts a probe that reads the properties of the primary queue, if no send has probed it for
// two intervals. If it is not due, wait says how long that takes, unless changed is closed before. It
// reports false when the goroutine that reads is to end.
func (f *failover) beginReading() (due bool, wait time.Duration, changed <-chan struct{}, on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state.Status != FailedOver || f.closed { // checked with the change, so that the next failover starts another
		f.watching = false
		return false, 0, nil, false
	}
	earlier := time.Now().Add(-f.probe)
	if f.beginProbe(earlier) {
		return true, 0, nil, true
	}
	return false, f.again.Due().Sub(earlier), f.changed.Next(), true
}

// endReading takes the result of that. A queue whose properties can be read may still not accept: the
// first failure that counts then fails it over again at once.
func (f *failover) endReading(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.endProbe(now, denied)
	switch {
	case f.closed: // which may have ended the reading
	case err != nil:
		f.state.LastError = err
	case f.state.Status == FailedOver:
		f.onTrial = true
		f.state.LastError = nil
		f.goHome(now)
	}
}

// close lets no goroutine read properties any more.
func (f *failover) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// unanswered counts a send to a backlog queue whose outcome is unknown.
func (f *failover) unanswered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state.Unanswered++
}

// count counts what became of a message that the primary queue did not take.
func (f *failover) count(accepted, maybeTwice bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case !accepted:
		f.state.Refused++
	case maybeTwice:
		f.state.MaybeTwice++
		f.outage.MaybeTwice++
		fallthrough
	default:
		f.state.Diverted++
		f.outage.Diverted++
	}
}

// failing returns since when the primary queue is failed over, and its newest error.
func (f *failover) failing() (since time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state.Since, f.state.LastError
}

// Outage is a time in which the sends to a primary queue failed.
type Outage struct {
	Queue        queue.Name // the primary queue
	FirstFailure time.Time  // when the oldest request that failed began, or when the last success came if that was later
	FailedOver   time.Time  // when sends began to go to the backlog queues
	Returned     time.Time  // when they went to the primary queue again; zero while the outage lasts
	Failures     int64      // sends that failed in a row before the failover
	Diverted     int64      // messages that backlog queues have accepted
	MaybeTwice   int64      // those of them that the primary queue may have accepted as well
	Err          error      // the failure before the failover
}

// reports are the failovers and returns that nobody has been told of yet.
type reports struct {
	waiting []Outage
	telling bool // whether somebody tells of them
}

func (r *reports) add(o Outage) { r.waiting = append(r.waiting, o) }

// next returns the next report to tell of, unless another goroutine is at it. Who got one calls told.
func (f *failover) next() (Outage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := &f.reports
	if r.telling || len(r.waiting) == 0 {
		return Outage{}, false
	}
	first := r.waiting[0]
	r.waiting = r.waiting[1:]
	r.telling = true
	return first, true
}

func (f *failover) told() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports.telling = false
}

// report tells of failovers and returns, in their order. No lock is held meanwhile: a hook may send.
func (q *Queue) report() {
	for {
		outage, ok := q.failover.next()
		if !ok {
			return
		}
		q.tell(outage)
		q.failover.told()
	}
}

// tell logs and calls the hook, and contains their panics.
func (q *Queue) tell(o Outage) {
	name, f := "OnFailover", q.options.OnFailover
	if !o.Returned.IsZero() {
		name, f = "OnReturn", q.options.OnReturn
	}
	hook.Run(func() { q.log(o) })
	if f == nil {
		return
	}
	if failure := hook.Run(func() { f(o) }); failure != nil {
		hook.Run(func() {
			q.logger().Error("a hook of a paired queue did not return", slog.String("hook", name), slog.String("queue", o.Queue.String()),
				slog.String("panic", fmt.Sprint(failure.Value)), slog.String("stack", string(failure.Stack)))
		})
	}
}

// log writes the one line of a failover or a return.
func (q *Queue) log(o Outage) {
	name := slog.String("queue", o.Queue.String())
	if o.Returned.IsZero() {
		q.logger().Warn("sends go to the backlog queues", name, slog.Time("failing_since", o.FirstFailure),
			slog.Int64("failures", o.Failures), slog.String("backlog", q.rotation.all[0].queue.Name().String()), slog.Any("error", o.Err))
		return
	}
	q.logger().Info("sends go to the primary queue again", name, slog.Duration("failed_over_for", o.Returned.Sub(o.FailedOver)),
		slog.Int64("diverted", o.Diverted), slog.Int64("maybe_twice", o.MaybeTwice))
}

func (q *Queue) logger() *slog.Logger {
	if q.options.Logger != nil {
		return q.options.Logger
	}
	return slog.Default()
}
