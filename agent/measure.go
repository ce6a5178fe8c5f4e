package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
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
	p, err := r.properties.call(queue.WithCause(ctx, queue.CauseDepth), requestTimeout, r.queue.Properties)
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
	messages, err := r.peek.call(queue.WithCause(ctx, queue.CauseDepth), requestTimeout, func(ctx context.Context) ([]queue.Message, error) {
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
	v, err := r.view.call(queue.WithCause(ctx, queue.CauseBeacon), requestTimeout, r.viewer.View)
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
