package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/beacon"
)

type queueReader struct {
	queue      queue.Queue
	properties caller[queue.Properties]
	peek       caller[[]queue.Message]
}

// shown is what one queue shows. What could not be read is unknown.
type shown struct {
	depth   scaling.Optional[int64]
	visible scaling.Optional[int64] // unknown also when there are more than one peek shows
	headAge scaling.Optional[time.Duration]
}

// read reads the depth, and looks at the visible messages unless there are none: the depth is never too low. That is two
// requests, or one while the queue is empty.
func (r *queueReader) read(ctx context.Context) (s shown, errs []*Error) {
	failed := func(doing, consequence, right string, err error) {
		errs = append(errs, &Error{Doing: doing, Queue: r.queue.Name(), Err: err, Consequence: consequence, Hint: queueHint(err, right)})
	}
	p, err := r.properties.call(request.WithCause(ctx, request.CauseDepth), requestTimeout, r.queue.Properties)
	if err != nil {
		failed(readingDepth, "the depth of the pool is unknown", "read the properties of the queue", err)
		if errors.Is(err, queue.ErrQueueMissing) {
			return s, errs // a peek would only say so again
		}
	} else {
		s.depth = scaling.Known(p.Depth)
		if p.Depth <= 0 {
			s.visible, s.headAge = scaling.Known[int64](0), scaling.Known[time.Duration](0)
			return s, errs
		}
	}
	messages, err := r.peek.call(request.WithCause(ctx, request.CauseDepth), requestTimeout, func(ctx context.Context) ([]queue.Message, error) {
		return r.queue.Peek(ctx, queue.MaxBatch)
	})
	if err != nil {
		failed(peeking, "it is unknown how long the oldest message of the pool has waited", "peek", err)
		return s, errs
	}
	if len(messages) < queue.MaxBatch {
		s.visible = scaling.Known(int64(len(messages)))
	}
	s.headAge = headAge(messages, time.Now())
	return s, errs
}

// headAge returns how long the oldest of the messages has waited that were never delivered: how long those have been visible that
// were given back is not known, and a retry after an hour must not look like a wait of an hour.
func headAge(messages []queue.Message, now time.Time) scaling.Optional[time.Duration] {
	if len(messages) == 0 {
		return scaling.Known[time.Duration](0)
	}
	var oldest scaling.Optional[time.Duration]
	for _, m := range messages {
		if m.DequeueCount > 0 || m.Inserted.IsZero() {
			continue
		}
		age := max(now.Sub(m.Inserted), 0) // the clock of the service may be ahead
		oldest = scaling.Known(max(oldest.Or(0), age))
	}
	return oldest
}

type controlReader struct {
	queue  queue.Queue
	viewer *beacon.Viewer
	view   caller[beacon.View]
}

func (r *controlReader) read(ctx context.Context) (v beacon.View, errs []*Error) {
	v, err := r.view.call(request.WithCause(ctx, request.CauseBeacon), requestTimeout, r.viewer.View)
	if err != nil {
		errs = append(errs, &Error{
			Doing: readingReports, Queue: r.queue.Name(), Err: err, Hint: queueHint(err, "peek at the control queue"),
			Consequence: "rates, handling times and what instances hold are unknown",
		})
	}
	return v, errs
}

// reading is what was read of a pool at one time.
type reading struct {
	at        time.Time // with the reading of the monotonic clock
	instances scaling.Optional[int]
	depth     scaling.Optional[int64]
	visible   scaling.Optional[int64]
	headAge   scaling.Optional[time.Duration]
	views     []beacon.View // nil if one of them could not be read
	errs      []*Error
}

// read reads everything at once. A request that fails or hangs costs its own figure alone, and no more time than its time-out.
func (p *pool) read(ctx context.Context) reading {
	r := reading{at: time.Now()}
	each := make([]shown, len(p.queues))
	views := make([]beacon.View, len(p.controls))
	errs := make([][]*Error, len(p.queues)+len(p.controls)+1)
	var all sync.WaitGroup
	for i, q := range p.queues {
		all.Go(func() { each[i], errs[i] = q.read(ctx) })
	}
	for i, c := range p.controls {
		all.Go(func() { views[i], errs[len(p.queues)+i] = c.read(ctx) })
	}
	all.Go(func() { r.instances, errs[len(errs)-1] = p.readInstances(ctx) })
	all.Wait()
	r.depth, r.visible, r.headAge = sums(each)
	r.views = views
	for i, failed := range errs {
		r.errs = append(r.errs, failed...)
		if len(failed) > 0 && i >= len(p.queues) && i < len(errs)-1 {
			r.views = nil // a sum of some is no sum
		}
	}
	return r
}

// sums adds up what the queues show. A figure that one of them lacks is unknown for all.
func sums(each []shown) (depth, visible scaling.Optional[int64], headAge scaling.Optional[time.Duration]) {
	depth, visible, headAge = scaling.Known[int64](0), scaling.Known[int64](0), scaling.Known[time.Duration](0)
	for _, s := range each {
		depth = combine(depth, s.depth, func(a, b int64) int64 { return a + b })
		visible = combine(visible, s.visible, func(a, b int64) int64 { return a + b })
		headAge = combine(headAge, s.headAge, func(a, b time.Duration) time.Duration { return max(a, b) })
	}
	return depth, visible, headAge
}

// combine combines two figures, if both are known.
func combine[T any](a, b scaling.Optional[T], f func(a, b T) T) scaling.Optional[T] {
	x, known := a.Get()
	y, both := b.Get()
	if !known || !both {
		return scaling.Optional[T]{}
	}
	return scaling.Known(f(x, y))
}

// reported sets what the instances report. Before the first report nothing is known: perhaps nobody reports. Later, no report
// means that no instance works.
func (p *pool) reported(s *scaling.Sample, r reading) {
	if len(p.controls) == 0 || r.views == nil {
		return
	}
	p.outages.tried[seeingReports] = true
	for i, v := range r.views {
		if v.Full {
			p.fail(full(p.controls[i].queue.Name(), v))
		}
	}
	of := *s
	p.fleet.Measure(&of, r.views...)
	if of.Ready.Or(1) > 0 { // also of a view that is full
		p.heard = true
	}
	if n, known := r.instances.Get(); p.heard || known && n == 0 {
		*s = of
	}
}

// full is the error of a view that may lack reports.
func full(control queue.Name, v beacon.View) *Error {
	e := &Error{
		Doing: seeingReports, Queue: control, Err: fmt.Errorf("a queue shows %d messages at most, and this one may have more", queue.MaxBatch),
		Consequence: "rates, and how many instances work, are unknown",
		Hint:        "if this lasts, let the instances create further queues, or divide the pool over several control queues",
	}
	if v.Ignored > 0 {
		e.Hint = fmt.Sprintf("%d of those that it shows are not reports: clear the queue, and the instances report again", v.Ignored)
	}
	return e
}

// split makes visible, in work and delayed add up to the depth, as far as they are known. What was seen to be visible counts for more
// than what instances report, which is some seconds old.
func split(s *scaling.Sample) {
	depth, known := s.Depth.Get()
	if !known {
		s.InWork, s.Delayed = scaling.Optional[int64]{}, scaling.Optional[int64]{}
		return
	}
	if depth <= 0 {
		none := scaling.Known[int64](0)
		s.Visible, s.InWork, s.Delayed = none, none, none
		return
	}
	visible, seen := s.Visible.Get()
	work, reported := s.InWork.Get()
	if !reported {
		s.Delayed = scaling.Optional[int64]{}
		if seen {
			s.Visible = scaling.Known(min(visible, depth)) // the two were read one after the other
		}
		return
	}
	if seen {
		visible = min(visible, depth)
		work = min(work, depth-visible)
	} else {
		work = min(work, depth)
		visible = depth - work - min(s.Delayed.Or(0), depth-work)
	}
	s.Visible, s.InWork, s.Delayed = scaling.Known(visible), scaling.Known(work), scaling.Known(depth-visible-work)
}

// arrival returns how many messages a second have come between two measurements: what the depth has grown by, and what was
// taken off meanwhile. It is unknown where one of these is, and over a time that is too short or that the clocks do not agree on.
func arrival(before, now scaling.Optional[int64], p passed, service scaling.Optional[float64], shortest time.Duration) (unknown scaling.Optional[float64]) {
	first, knownFirst := before.Get()
	last, knownLast := now.Get()
	ended, knownEnded := service.Get()
	if !knownFirst || !knownLast || !knownEnded || p.steady < shortest || !p.agree() {
		return unknown
	}
	return scaling.Known(max(float64(last-first)/p.steady.Seconds()+ended, 0))
}

// passed is how far the clocks have gone between two measurements.
type passed struct {
	steady time.Duration // the monotonic clock, which nobody sets, and which may stand still while the machine sleeps
	wall   time.Duration // the clock that people read
}

// clockStep is by how much the clocks may differ between two measurements: so much do time servers correct a clock little by little, and a
// rate does not notice.
const clockStep = time.Second

// between returns how far the clocks have gone between two readings in this process.
func between(from, to time.Time) passed {
	return passed{steady: to.Sub(from), wall: to.Round(0).Sub(from.Round(0))}
}

// agree reports whether both clocks have gone as far. If not, the clock was set or the machine has slept, and nobody knows how much
// time has passed.
func (p passed) agree() bool { return (p.wall - p.steady).Abs() <= clockStep }

// setBack returns by how much the clock was set back, zero if it was not. A clock that was set forward looks like a machine
// that has slept.
func (p passed) setBack() time.Duration {
	if back := p.steady - p.wall; back > clockStep {
		return back
	}
	return 0
}

var errHangs = errors.New("the call does not return although its context has ended")

// caller makes calls that may hang or panic: of a queue, an actuator or a file system. It makes one at a time: while one hangs, others
// fail at once. Only one goroutine may use it.
type caller[T any] struct {
	running chan outcome[T] // gets the outcome of a call that was given up; nil if there is none
	since   time.Time       // when that began
}

// outcome is what a call came to.
type outcome[T any] struct {
	value   T
	err     error
	failure *hook.Failure
}

// call calls f on a goroutine of its own, with a context that ends after timeout, and waits until it returns. If it does not return
// within [patience] of the end of its context, call fails without it.
func (c *caller[T]) call(ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	if !c.idle() {
		var none T
		return none, fmt.Errorf("%w since %v: nothing else is tried before it returns", errHangs, c.since.Format(time.TimeOnly))
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no response within %v: %w", timeout, context.DeadlineExceeded))
	done := make(chan outcome[T], 1) // buffered: nobody may receive
	go func() {                      // given up when it hangs; wait waits for it
		defer cancel()
		var o outcome[T]
		o.failure = hook.Run(func() { o.value, o.err = f(ctx) })
		done <- o
	}()
	select {
	case o := <-done:
		return o.result(ctx)
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		return o.result(ctx)
	case <-time.After(patience):
	}
	c.running, c.since = done, begin
	var none T
	return none, errHangs
}

// result returns what the call returned, or its panic as an error.
func (o outcome[T]) result(ctx context.Context) (value T, err error) {
	switch {
	case o.failure != nil:
		return value, panicked(o.failure)
	case o.err != nil && errors.Is(o.err, context.DeadlineExceeded) && context.Cause(ctx) != nil:
		return value, fmt.Errorf("%w (%w)", context.Cause(ctx), o.err)
	}
	return o.value, o.err
}

// idle reports whether no call hangs.
func (c *caller[T]) idle() bool {
	select {
	case <-c.running:
		c.running = nil
	default:
	}
	return c.running == nil
}

// wait waits until no call hangs, or until end is closed, and reports whether none does.
func (c *caller[T]) wait(end <-chan struct{}) bool {
	if c.running == nil {
		return true
	}
	select {
	case <-c.running:
		c.running = nil
		return true
	case <-end:
		return c.idle()
	}
}
