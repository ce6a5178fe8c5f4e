package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Begin notes that a handler starts for the n-th delivery of a message, and returns the context for
// it. That ends, with the cause [ErrTokenLost], 15 s before a token could be another's. Begin fails
// with [ErrTokenLost] if the handler must not start, because the token that the message was fetched
// with is lost. Call [ConcurrencyLimit.End] with the context when the handler has returned. The
// message of a group is kept in the count after that, since its next item may follow. The
// interceptor slots.OfFleet calls both.
func (l *ConcurrencyLimit) Begin(ctx context.Context, name queue.Name, id queue.ID, n int64, group bool) (context.Context, error) {
	c := l.begin(ctx, name, id, n, group)
	if c == nil {
		return nil, fmt.Errorf("the limit «%s»: %w", l.source.limit, ErrTokenLost)
	}
	return &c.context, nil
}

// begin notes that a handler starts, or returns nil if it must not.
func (l *ConcurrencyLimit) begin(ctx context.Context, name queue.Name, id queue.ID, n int64, group bool) *call {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intercepted = true
	now := time.Now()
	l.update(now)
	if l.phase != working {
		return nil
	}
	j := l.jobs.of(name, id, n)
	switch {
	case j != nil && j.told:
		return nil
	case j == nil && l.room(now) == 0: // what it was fetched for is gone
		return nil
	case j == nil:
		j = l.add(name, id, n, "", now)
	}
	c := &j.first
	if c.job != nil { // it may still be used, by what its handler has left behind
		c = new(call)
	}
	c.job, c.group, c.begun = j, group, now
	c.context.limit, c.context.call, c.context.delivery = l, c, ctx
	if j.calls == nil {
		j.calls = j.one[:0]
	}
	j.calls = append(j.calls, c)
	return c
}

// End notes that a handler has returned, and reports whether its context had ended because a token
// was lost. The context is the one that [ConcurrencyLimit.Begin] of this limit returned, or a context
// derived from it. A second call for the same handler changes nothing. With a context from
// elsewhere, End changes nothing and returns false.
func (l *ConcurrencyLimit) End(handler context.Context) (stopped bool) {
	own, ok := handler.(*handlerContext)
	if !ok || own.limit != l { // derived, perhaps by another limit inside of this one
		if own, ok = handler.Value(handlerKey{l}).(*handlerContext); !ok {
			return false
		}
	}
	c := own.call
	stopped = errors.Is(context.Cause(own), ErrTokenLost)
	l.mu.Lock()
	defer l.mu.Unlock()
	j := c.job
	if !slices.Contains(j.calls, c) { // it has ended
		return stopped
	}
	own.end(nil)
	j.calls = slices.DeleteFunc(j.calls, func(one *call) bool { return one == c })
	l.took += (time.Since(c.begun) - l.took) / 8
	if len(j.calls) == 0 && (j.settled || j.told || !c.group) {
		l.remove(j)
	}
	return stopped
}

// Wrap returns a queue whose dequeues are held to the limit. All else goes to q unchanged. It is a
// [queue.Manager] if q is one. Several queues may share the limit; siblings, such as a poison queue, have none.
// The handlers of the queue must run between Begin and End, as the interceptor of package slots has it.
func (l *ConcurrencyLimit) Wrap(q queue.Queue) queue.Queue {
	wrapped := &bounded{Queue: q, limit: l}
	if inner, ok := q.(queue.Manager); ok {
		return &boundedManager{wrapped, inner}
	}
	return wrapped
}

// bounded is a queue of whose messages so many are handled at once.
type bounded struct {
	queue.Queue
	limit *ConcurrencyLimit
	empty atomic.Bool // the last dequeue has found nothing
	many  atomic.Bool // the last dequeue has found all that it could
}

// administration is what a [queue.Manager] has beyond a [queue.Queue].
type administration interface {
	SetMetadata(ctx context.Context, metadata map[string]string) error
	Clear(ctx context.Context) error
	Drop(ctx context.Context) error
}

// boundedManager is a [queue.Manager] of whose messages so many are handled at once.
type boundedManager struct {
	*bounded
	administration
}

// Unwrap returns the queue underneath, for errors that name its type.
func (q *bounded) Unwrap() queue.Queue { return q.Queue }

// Dequeue implements [queue.Queue]. See the package comment.
func (q *bounded) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if ctx.Err() != nil || driver.CheckDequeue(n, visibility) != nil {
		return q.Queue.Dequeue(ctx, n, visibility) // which refuses it
	}
	if err := q.limit.misused(); err != nil {
		return nil, q.limit.source.explain(err, q.Name())
	}
	if q.empty.Load() && q.limit.wouldAsk() { // looking costs no token
		found, err := q.Queue.Peek(ctx, 1)
		if err != nil || len(found) == 0 {
			return nil, err
		}
	}
	room, wait, err := q.limit.reserve(ctx, n, q.many.Load())
	switch {
	case err != nil:
		return nil, q.limit.source.explain(err, q.Name())
	case room == 0:
		return nil, heldBack("dequeue", q.Name(), wait, q.limit.source.limit)
	}
	asked := time.Now()
	batch, err := q.Queue.Dequeue(ctx, room, visibility)
	admitted, over := q.limit.admit(q.Name(), batch, room, asked.Add(visibility))
	if err == nil {
		q.empty.Store(len(batch) == 0)
		q.many.Store(len(batch) == room)
	}
	if len(over) == 0 {
		return admitted, err
	}
	giveBack(ctx, q.Queue, over)
	if len(admitted) == 0 {
		return nil, &queue.Error{
			Op: "dequeue", Queue: q.Name(), Kind: queue.ErrOutcomeUnknown,
			Detail: fmt.Sprintf("when the response came tokens of the limit «%s» were lost, or it was stopped; its %d messages were given back", q.limit.source.limit, len(over)),
		}
	}
	return admitted, nil
}

// EmptyAfter is that of the queue underneath, unless the last dequeue has found all that it could. See [driver.EmptyAfter].
func (q *bounded) EmptyAfter() int {
	if q.many.Load() {
		return 0
	}
	return driver.EmptyAfter(q.Queue)
}

// wouldAsk reports whether a dequeue would ask for a token now because there is no room.
func (l *ConcurrencyLimit) wouldAsk() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return l.phase == working && l.room(now) == 0 && l.mayAsk(now)
}

// admit records the messages that were fetched with a reservation, and returns those that may be handled: tokens may
// have been lost meanwhile.
func (l *ConcurrencyLimit) admit(name queue.Name, batch []queue.Message, reserved int, until time.Time) (admitted, over []queue.Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved -= reserved
	added := make([]*job, 0, len(batch))
	if l.phase == working {
		for _, m := range batch {
			added = append(added, l.add(name, m.ID, m.DequeueCount, m.Receipt, until))
		}
	}
	l.update(time.Now())
	admitted = batch[:0]
	for i, m := range batch {
		if i < len(added) && !added[i].removed {
			admitted = append(admitted, m)
		} else {
			over = append(over, m)
		}
	}
	return admitted, over
}

// Update implements [queue.Queue]. A renewal keeps the message; anything else gives it back.
func (q *bounded) Update(ctx context.Context, lease queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	renewal := false
	switch request.CauseOf(ctx) {
	case request.CauseRenew, request.CauseSave, request.CauseStart:
		renewal = true
	case request.CauseUnknown: // not by a listener
		renewal = visibility > 0
	}
	if !renewal {
		q.limit.settled(q.Name(), lease, false)
		return q.Queue.Update(ctx, lease, text, visibility)
	}
	asked := time.Now()
	fresh, err := q.Queue.Update(ctx, lease, text, visibility)
	if err == nil {
		q.limit.renewed(q.Name(), lease, fresh.Receipt, asked.Add(visibility))
	}
	return fresh, err
}

// Delete implements [queue.Queue].
func (q *bounded) Delete(ctx context.Context, lease queue.Lease) error {
	q.limit.settled(q.Name(), lease, request.CauseOf(ctx) == request.CauseDelete)
	return q.Queue.Delete(ctx, lease)
}

// settled notes that no handler of a message will start any more, whatever becomes of the request.
func (l *ConcurrencyLimit) settled(name queue.Name, lease queue.Lease, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if deleted && !l.intercepted {
		l.unseen++
	}
	j := l.jobs.find(name, lease)
	if j == nil {
		return
	}
	if j.settled = true; len(j.calls) == 0 {
		l.remove(j)
	}
}

// renewed notes a new lease of a message.
func (l *ConcurrencyLimit) renewed(name queue.Name, lease queue.Lease, receipt queue.Receipt, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if j := l.jobs.find(name, lease); j != nil {
		j.receipt, j.until = receipt, until
	}
}

// manyUnseen is how many jobs must have been deleted before it is taken for a mistake that Begin was called for none. They
// might be duplicates, which have no handler.
const manyUnseen = 100

// misused returns an error, from time to time, if handlers run without Begin.
func (l *ConcurrencyLimit) misused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.intercepted || l.unseen < manyUnseen {
		return nil
	}
	l.unseen = 0
	return errors.New("none of its handlers runs in the interceptor of the limit: add slots.OfFleet(limit.Begin, limit.End) to the Interceptors of the listener")
}

// Wrap returns a queue whose dequeues are held to the limit. All else goes to q unchanged. It is a
// [queue.Manager] if q is one. Several queues may share the limit; siblings, such as a poison queue, have none.
func (l *RateLimit) Wrap(q queue.Queue) queue.Queue {
	wrapped := &rated{Queue: q, limit: l}
	if inner, ok := q.(queue.Manager); ok {
		return &ratedManager{wrapped, inner}
	}
	return wrapped
}

// rated is a queue whose dequeues are held to a rate.
type rated struct {
	queue.Queue
	limit *RateLimit
	seen  atomic.Int64 // jobs that a look has found and no dequeue has fetched yet; 0 without a look
	run   atomic.Int64 // jobs of the last dequeues in a row that found all they could
	many  atomic.Bool  // the last dequeue has found all that it could
}

// ratedManager is a [queue.Manager] whose dequeues are held to a rate.
type ratedManager struct {
	*rated
	administration
}

// Unwrap returns the queue underneath, for errors that name its type.
func (q *rated) Unwrap() queue.Queue { return q.Queue }

// Dequeue implements [queue.Queue]. See the package comment.
func (q *rated) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if ctx.Err() != nil || driver.CheckDequeue(n, visibility) != nil {
		return q.Queue.Dequeue(ctx, n, visibility) // which refuses it
	}
	want := q.expected()
	if want == 0 && q.limit.mustLook() { // looking costs no token
		found, err := q.Queue.Peek(ctx, n)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		want = len(found)
		q.seen.Store(int64(want))
	}
	shares, wait, err := q.limit.reserve(ctx, n, max(want, 1))
	switch {
	case err != nil:
		return nil, q.limit.source.explain(err, q.Name())
	case len(shares) == 0:
		return nil, heldBack("dequeue", q.Name(), wait, q.limit.source.limit)
	}
	batch, err := q.Queue.Dequeue(ctx, jobsOf(shares), visibility)
	if len(batch) > 0 && time.Now().After(deadlineOf(shares)) {
		q.limit.settle(shares, len(batch))
		giveBack(ctx, q.Queue, batch)
		return nil, &queue.Error{
			Op: "dequeue", Queue: q.Name(), Kind: queue.ErrOutcomeUnknown,
			Detail: fmt.Sprintf("the response took so long that the tokens of the limit «%s» could no longer be spent; its %d messages were given back", q.limit.source.limit, len(batch)),
		}
	}
	q.limit.settle(shares, len(batch))
	if err == nil {
		q.learn(n, jobsOf(shares), len(batch))
	}
	return batch, err
}

// expected returns how many jobs are probably there: those that a look has found, or as many again as
// the last dequeues have, so that tokens are taken for a backlog and not for a lone job.
func (q *rated) expected() int {
	if run := q.run.Load(); run > 1 {
		return int(run)
	}
	return int(q.seen.Load())
}

// EmptyAfter is that of the queue underneath, unless the last dequeue has found all that it could. See [driver.EmptyAfter].
func (q *rated) EmptyAfter() int {
	if q.many.Load() {
		return 0
	}
	return driver.EmptyAfter(q.Queue)
}

// learn notes what a dequeue of up to n jobs has got, which had room for so many.
func (q *rated) learn(n, room, got int) {
	q.many.Store(got == room)
	seen := int(q.seen.Swap(0))
	if got < room || got == seen && seen < n {
		q.run.Store(0)
		return
	}
	q.run.Store(min(q.run.Load()+int64(got), queue.MaxBatch))
}
