package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// ProcessOptions are the rates of a [Process]. At least one must be set.
type ProcessOptions struct {
	// Messages is how many messages may be put, got, peeked at and deleted a second. Defaults to 0, no limit.
	Messages float64

	// Requests is how many requests may be sent a second. Defaults to 0, no limit.
	Requests float64

	// Burst is for how long what is not used is saved up: so much more may be sent at once. At least one
	// message and one request can always be saved up. Defaults to 1 s.
	Burst time.Duration
}

// Process is a bound on what the queues that it wraps send together. Make one with [NewProcess]. It is safe for
// concurrent use.
type Process struct {
	text  string        // for errors
	grace time.Duration // for how long a claim that is due waits for its queue

	mu       sync.Mutex
	messages bucket  // guarded by mu
	requests bucket  // guarded by mu
	claims   []claim // of queues whose dequeue was held back; guarded by mu
}

// claim is the share of a queue whose dequeue was held back: it is taken already, so that enqueues,
// which wait for their turn, do not take it each time.
type claim struct {
	of       *limited
	messages int
	due      time.Time // when it may be used
}

// NewProcess returns a limit. It fails if the rates are negative, not numbers, or both zero.
func NewProcess(o *ProcessOptions) (*Process, error) {
	o = cmp.Or(o, &ProcessOptions{})
	var parts []string
	for _, one := range []struct {
		name string
		rate float64
	}{{"Messages", o.Messages}, {"Requests", o.Requests}} {
		if one.rate < 0 || math.IsNaN(one.rate) || math.IsInf(one.rate, 0) {
			return nil, fmt.Errorf("limits: ProcessOptions.%s is %v: give a number a second, or 0 for no limit", one.name, one.rate)
		}
		if one.rate > 0 {
			parts = append(parts, fmt.Sprintf("%v %s", one.rate, strings.ToLower(one.name)))
		}
	}
	switch {
	case len(parts) == 0:
		return nil, fmt.Errorf("limits: set ProcessOptions.Messages or ProcessOptions.Requests: neither is a limit")
	case o.Burst < 0:
		return nil, fmt.Errorf("limits: ProcessOptions.Burst is %v: it must not be negative", o.Burst)
	}
	if err := units.Wait("limits: ProcessOptions.Burst", o.Burst); err != nil {
		return nil, err
	}
	burst := cmp.Or(o.Burst, time.Second)
	grace := min(burst/4, maxGrace)
	burst -= grace // so much more comes together if a claim is used late
	return &Process{
		text:     strings.Join(parts, " and ") + " a second",
		grace:    grace,
		messages: newBucket(o.Messages, burst), requests: newBucket(o.Requests, burst),
	}, nil
}

// maxGrace is longer than listeners are late.
const maxGrace = 250 * time.Millisecond

// fetch takes what a dequeue of up to n messages needs and returns how many it may ask for, or how long it
// must wait.
func (l *Process) fetch(q *limited, n int) (allowed int, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if i := slices.IndexFunc(l.claims, func(c claim) bool { return c.of == q }); i >= 0 {
		c := l.claims[i]
		if wait = c.due.Sub(now); wait > 0 {
			return 0, wait
		}
		l.unclaim(now, i)
		if unused := c.messages - n; unused > 0 {
			l.messages.giveBack(now, unused)
		}
		return min(n, c.messages), 0
	}
	n = l.messages.most(n)
	wait = max(l.messages.wait(now, n), l.requests.wait(now, 1))
	l.messages.take(now, n)
	l.requests.take(now, 1)
	if wait > 0 {
		l.claims = append(l.claims, claim{q, n, now.Add(wait)})
		l.messages.await(n)
		l.requests.await(1)
		return 0, wait
	}
	return n, 0
}

// unclaim removes a claim. Requires mu.
func (l *Process) unclaim(now time.Time, i int) {
	l.messages.served(now, l.claims[i].messages)
	l.requests.served(now, 1)
	l.claims = slices.Delete(l.claims, i, i+1)
}

// send takes a request with a message, and waits until it may be sent or ctx ends. It fails at once if ctx
// will end before that.
func (l *Process) send(ctx context.Context, name queue.Name) error {
	l.mu.Lock()
	now := l.now()
	wait := max(l.messages.wait(now, 1), l.requests.wait(now, 1))
	if deadline, ok := ctx.Deadline(); ok && wait > 0 && deadline.Before(now.Add(wait)) {
		l.mu.Unlock()
		return l.heldBack("enqueue", name, wait)
	}
	l.messages.take(now, 1)
	l.requests.take(now, 1)
	if wait == 0 {
		l.mu.Unlock()
		return nil
	}
	l.messages.await(1)
	l.requests.await(1)
	l.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		l.endWait()
		return nil
	case <-ctx.Done():
		l.endWait()
		l.unused(1, 1)
		return driver.Explain(serviceerror.Ended(ctx), "enqueue", name, "")
	}
}

// endWait records that an enqueue has had its turn, or has given it up.
func (l *Process) endWait() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.served(now, 1)
	l.requests.served(now, 1)
}

// now returns the time, after what it has brought. Requires mu.
func (l *Process) now() time.Time {
	now := time.Now()
	// Give back claims whose queues did not come.
	for i := 0; i < len(l.claims); {
		c := l.claims[i]
		if now.Before(c.due.Add(l.grace)) {
			i++
			continue
		}
		l.unclaim(now, i)
		l.messages.giveBack(now, c.messages)
		l.requests.giveBack(now, 1)
	}
	return now
}

// heldBack returns the error of a request that must wait.
func (l *Process) heldBack(op string, name queue.Name, wait time.Duration) error {
	return heldBack(op, name, wait, l.text)
}

// heldBack returns the error of a request that a limit does not allow for a while.
func heldBack(op string, name queue.Name, wait time.Duration, limit string) error {
	return &queue.Error{
		Op: op, Queue: name, Kind: queue.ErrLimited, Detail: limit, RetryAfter: wait,
		Hint: fmt.Sprintf("nothing was sent: try again in %v", max(wait, 0).Round(time.Millisecond)),
	}
}

// charge takes a request that is sent without waiting, and its messages.
func (l *Process) charge(messages int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.charge(now, messages)
	l.requests.charge(now, 1)
}

// unused gives back what was taken and not sent.
func (l *Process) unused(messages, requests int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	l.messages.giveBack(now, messages)
	l.requests.giveBack(now, requests)
}

// bucket is a token bucket to which what was not used can be given back. The zero value is no limit.
// The lock of the Limit guards it.
type bucket struct {
	limiter *rate.Limiter
	credit  float64 // given back
	waiting int     // taken by those who wait for their turn: it is still in the bucket, or will be
	largest int     // the most that one of them has taken
}

func newBucket(perSecond float64, burst time.Duration) bucket {
	if perSecond == 0 {
		return bucket{}
	}
	// At least one, or nothing would ever be allowed.
	size := int(max(1, min(perSecond*burst.Seconds(), math.MaxInt32)))
	return bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), size)}
}

// most returns how many of n fit into the bucket, and in a second: those that wait for more would wait for
// long at a low rate.
func (b *bucket) most(n int) int {
	if b.limiter == nil {
		return n
	}
	return max(1, min(n, b.limiter.Burst(), int(b.limiter.Limit())))
}

// wait returns how long it takes until n may be taken.
func (b *bucket) wait(now time.Time, n int) time.Duration {
	if b.limiter == nil || n == 0 {
		return 0
	}
	b.clamp(now)
	missing := float64(n) - b.limiter.TokensAt(now) - b.credit
	if missing < 1e-6 { // what rounding leaves
		return 0
	}
	seconds := missing / float64(b.limiter.Limit())
	return time.Duration(min(math.Ceil(seconds*1e9), math.MaxInt64/2))
}

// take takes n, whether it is there or not: who comes later waits until it is. n is at most the burst.
func (b *bucket) take(now time.Time, n int) {
	if b.limiter == nil {
		return
	}
	b.clamp(now)
	whole := min(n, int(b.credit+1e-6))
	b.credit = max(b.credit-float64(whole), 0)
	if n > whole {
		b.limiter.ReserveN(now, n-whole)
	}
}

// charge takes n, in parts if it is more than the burst.
func (b *bucket) charge(now time.Time, n int) {
	for b.limiter != nil && n > 0 {
		part := min(n, b.limiter.Burst())
		b.take(now, part)
		n -= part
	}
}

// giveBack returns n that were taken and not used. What the bucket cannot hold is lost, as it would be
// had it never been taken.
func (b *bucket) giveBack(now time.Time, n int) {
	if b.limiter == nil {
		return
	}
	b.credit += float64(n)
	b.clamp(now)
}

// clamp removes the credit that the bucket cannot hold.
func (b *bucket) clamp(now time.Time) {
	room := float64(b.limiter.Burst()-b.waiting) - b.limiter.TokensAt(now)
	if b.waiting > 0 { // who comes now counts on the credit, and it must fit beside what comes in before each turn
		room = min(room, float64(b.limiter.Burst()-b.largest))
	}
	b.credit = max(min(b.credit, room), 0)
}

// await records that n were taken by one who waits for his turn.
func (b *bucket) await(n int) {
	b.waiting += n
	b.largest = max(b.largest, n)
}

// served records that one who waited has had his turn.
func (b *bucket) served(now time.Time, n int) {
	if b.limiter != nil {
		b.clamp(now) // while it is in the bucket
	}
	if b.waiting -= n; b.waiting == 0 {
		b.largest = 0
	}
}

// Wrap returns a queue that is held to the limit, together with its siblings. It is a [queue.Manager] if q
// is one.
func (l *Process) Wrap(q queue.Queue) queue.Queue {
	wrapped := &limited{inner: q, limit: l}
	if inner, ok := q.(queue.Manager); ok {
		return &managed{wrapped, inner}
	}
	return wrapped
}

// limited is a queue that is held to a limit.
type limited struct {
	inner queue.Queue
	limit *Process
	many  atomic.Bool // the last dequeue has got all that it asked for
}

var (
	_ queue.Queue   = (*limited)(nil)
	_ queue.Manager = (*managed)(nil)
)

// Unwrap returns the queue underneath, for errors that name its type.
func (q *limited) Unwrap() queue.Queue { return q.inner }

// Name implements [queue.Queue].
func (q *limited) Name() queue.Name { return q.inner.Name() }

// Sibling implements [queue.Queue].
func (q *limited) Sibling(suffix string) queue.Queue { return q.limit.Wrap(q.inner.Sibling(suffix)) }

// Lookup returns the queue with this name, such as that of a message that Enqueue has returned: this one, or one
// that the queue underneath finds by a Lookup of its own, held to the same limit.
func (q *limited) Lookup(name queue.Name) (queue.Queue, bool) {
	if name == q.Name() {
		return q.limit.Wrap(q.inner), true
	}
	if several, ok := q.inner.(interface {
		Lookup(name queue.Name) (queue.Queue, bool)
	}); ok {
		if found, ok := several.Lookup(name); ok {
			return q.limit.Wrap(found), true
		}
	}
	return nil, false
}

// Enqueue implements [queue.Queue]. It waits for its turn.
func (q *limited) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if ctx.Err() != nil || driver.CheckEnqueue(o) != nil || driver.CheckText(text) != nil {
		return q.inner.Enqueue(ctx, text, o) // which refuses it
	}
	if err := q.limit.send(ctx, q.inner.Name()); err != nil {
		return queue.Message{}, err
	}
	sent, err := q.inner.Enqueue(ctx, text, o)
	if errors.Is(err, queue.ErrLimited) {
		q.limit.unused(1, 1)
	}
	return sent, err
}

// Dequeue implements [queue.Queue]. It does not wait: see the package comment.
func (q *limited) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if ctx.Err() != nil || driver.CheckDequeue(n, visibility) != nil {
		return q.inner.Dequeue(ctx, n, visibility) // which refuses it
	}
	allowed, wait := q.limit.fetch(q, n)
	if wait > 0 {
		return nil, q.limit.heldBack("dequeue", q.inner.Name(), wait)
	}
	batch, err := q.inner.Dequeue(ctx, allowed, visibility)
	q.many.Store(len(batch) == allowed)
	switch {
	case errors.Is(err, queue.ErrLimited):
		q.limit.unused(allowed, 1)
	case len(batch) < allowed:
		q.limit.unused(allowed-len(batch), 0)
	}
	return batch, err
}

// EmptyAfter is that of the queue underneath, unless the last dequeue has got all that it asked for. See [driver.EmptyAfter].
func (q *limited) EmptyAfter() int {
	if q.many.Load() {
		return 0
	}
	return driver.EmptyAfter(q.inner)
}

// Peek implements [queue.Queue].
func (q *limited) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	batch, err := q.inner.Peek(ctx, n)
	q.limit.charge(len(batch))
	return batch, err
}

// Update implements [queue.Queue].
func (q *limited) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.limit.charge(0)
	return q.inner.Update(ctx, l, text, visibility)
}

// Delete implements [queue.Queue].
func (q *limited) Delete(ctx context.Context, l queue.Lease) error {
	q.limit.charge(1)
	return q.inner.Delete(ctx, l)
}

// Properties implements [queue.Queue].
func (q *limited) Properties(ctx context.Context) (queue.Properties, error) {
	q.limit.charge(0)
	return q.inner.Properties(ctx)
}

// Create implements [queue.Queue].
func (q *limited) Create(ctx context.Context, metadata map[string]string) error {
	q.limit.charge(0)
	return q.inner.Create(ctx, metadata)
}

// managed is a [queue.Manager] that is held to a limit.
type managed struct {
	*limited
	manager queue.Manager
}

// SetMetadata implements [queue.Manager].
func (m *managed) SetMetadata(ctx context.Context, metadata map[string]string) error {
	m.limit.charge(0)
	return m.manager.SetMetadata(ctx, metadata)
}

// Clear implements [queue.Manager].
func (m *managed) Clear(ctx context.Context) error {
	m.limit.charge(0)
	return m.manager.Clear(ctx)
}

// Drop implements [queue.Manager].
func (m *managed) Drop(ctx context.Context) error {
	m.limit.charge(0)
	return m.manager.Drop(ctx)
}
