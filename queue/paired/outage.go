package paired

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Outage is a time in which the sends to a primary queue failed.
type Outage struct {
	Queue        queue.Name // the primary queue
	FirstFailure time.Time  // when the first send failed
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
			slog.Int64("failures", o.Failures), slog.String("backlog", q.rotation.name()), slog.Any("error", o.Err))
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
