package paired

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Queue is a primary queue whose sends survive an outage: see the package comment. Make one with [New],
// call [Queue.Pair] before the first send, and [Queue.Close] at the end. It is safe for concurrent use.
type Queue struct {
	primary  queue.Queue
	options  Options
	rotation *rotation
	failover *failover
	paired   atomic.Bool
	syphons  syphonHints
	failing  failing
	gate     gate

	life     context.Context // of the goroutine that watches the primary queue
	cancel   func()          // ends life
	watchers sync.WaitGroup  // that goroutine; Add with failover.mu
}

var _ queue.Manager = (*Queue)(nil)

// developmentAccount is the account of every emulator: queues of two emulators have the same name.
const developmentAccount = "devstoreaccount1"

// New returns a queue that receives and sends like the primary queue, and whose sends go to backlog
// queues in an outage. The backlog queues are siblings of the secondary queue, such as "orders-backlog-07"; the
// secondary queue itself is never used and need not exist. Several primary queues of one account may share its
// backlog queues: every message says where it belongs. New sends nothing.
//
// It returns [queue.ErrInvalid] for a nil queue, for options out of range, and for a pair of a queue with itself.
// The names of the queues tell that, except in the development account, which every emulator has.
func New(primary, secondary queue.Queue, o *Options) (*Queue, error) {
	if hook.IsNil(primary) || hook.IsNil(secondary) {
		return nil, fmt.Errorf("paired.New: %w", invalid("a queue is nil"))
	}
	all := o.withDefaults()
	if err := all.validate(); err != nil {
		return nil, driver.Explain(err, "pair", primary.Name(), "")
	}
	q := &Queue{primary: primary, options: all, failing: failing{seed: maphash.MakeSeed()}, gate: gate{head: make(chan struct{}, 1)}, failover: &failover{state: State{Queue: primary.Name()}, interval: all.FailoverInterval, probe: all.ProbeInterval}}
	q.life, q.cancel = context.WithCancel(context.Background())
	r := &rotation{}
	for i, q := range backlogQueues(secondary, all.Backlogs) {
		r.all = append(r.all, &backlog{queue: q, suffix: backlogSuffix(i), state: BacklogState{Queue: q.Name()}})
	}
	q.rotation = r
	is := func(b *backlog) bool { return b.queue.Name() == primary.Name() }
	if primary.Name().Account != developmentAccount && (primary.Name() == secondary.Name() || slices.ContainsFunc(r.all, is)) {
		return nil, driver.Explain(invalid("the secondary queue %v is the primary queue, or would have it as a backlog queue: it must be in another account", secondary.Name()),
			"pair", primary.Name(), "")
	}
	return q, nil
}

// Unwrap returns the primary queue.
func (q *Queue) Unwrap() queue.Queue { return q.primary }

// Name returns the name of the primary queue.
func (q *Queue) Name() queue.Name { return q.primary.Name() }

// Sibling returns the sibling of the primary queue, which is not paired: a copy in the poison queue is of no
// use while the message itself cannot be deleted, and belongs into the same account.
func (q *Queue) Sibling(suffix string) queue.Queue { return q.primary.Sibling(suffix) }

// Dequeue takes messages of the primary queue alone.
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.primary.Dequeue(ctx, n, visibility)
	q.syphons.received(ctx, err, q.options.FailoverInterval)
	return batch, err
}

// EmptyAfter is that of the primary queue. See [driver.EmptyAfter].
func (q *Queue) EmptyAfter() int { return driver.EmptyAfter(q.primary) }

// Peek returns messages of the primary queue alone.
func (q *Queue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	return q.primary.Peek(ctx, n)
}

// Update updates a message of the primary queue.
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	return q.primary.Update(ctx, l, text, visibility)
}

// Delete deletes a message of the primary queue. [Queue.Lookup] finds the others.
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error { return q.primary.Delete(ctx, l) }

// Lookup returns the queue with this name, such as that of a [queue.Message] that [Queue.Enqueue] has returned: q
// itself for that of the primary queue, or a backlog queue. A message in a backlog queue can be deleted there until
// the syphon takes it.
func (q *Queue) Lookup(name queue.Name) (queue.Queue, bool) {
	if name == q.Name() {
		return q, true
	}
	for _, b := range q.rotation.all {
		if b.queue.Name() == name {
			return b.queue, true
		}
	}
	return nil, false
}

// Properties returns the properties of the primary queue. [Queue.Backlog] tells what waits in the backlog
// queues.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	return q.primary.Properties(ctx)
}

// Create creates the primary queue.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	return q.primary.Create(ctx, metadata)
}

// SetMetadata implements [queue.Manager] on the primary queue. The error is [queue.ErrInvalid] if that is
// none.
func (q *Queue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	m, err := q.manager("set metadata")
	if err != nil {
		return err
	}
	return m.SetMetadata(ctx, metadata)
}

// Clear implements [queue.Manager] on the primary queue. What waits in the backlog queues stays. The error is
// [queue.ErrInvalid] if the primary queue is no Manager.
func (q *Queue) Clear(ctx context.Context) error {
	m, err := q.manager("clear")
	if err != nil {
		return err
	}
	return m.Clear(ctx)
}

// Drop implements [queue.Manager] on the primary queue. The backlog queues stay. The error is
// [queue.ErrInvalid] if the primary queue is no Manager.
func (q *Queue) Drop(ctx context.Context) error {
	m, err := q.manager("drop")
	if err != nil {
		return err
	}
	return m.Drop(ctx)
}

func (q *Queue) manager(op string) (queue.Manager, error) {
	if m, ok := q.primary.(queue.Manager); ok {
		return m, nil
	}
	return nil, driver.Explain(invalid("the primary queue cannot be administered: it is not a queue.Manager"), op, q.Name(), "")
}

// watch starts the goroutine that watches a primary queue that is failed over, unless it runs. It ends when
// sends return, or with [Queue.Close].
func (q *Queue) watch() {
	if q.failover.beginWatch(&q.watchers) {
		go q.read()
	}
}

// read probes the primary queue by reading its properties whenever no send has probed it for long.
func (q *Queue) read() {
	defer q.watchers.Done()
	for {
		due, wait, changed, on := q.failover.beginReading()
		switch {
		case !on:
			return
		case due:
			q.readOnce()
		default:
			waiting.ForChange(wait, changed, q.life.Done()) // no wait: the end of a probe in flight is a change
		}
	}
}

// readOnce sends one request.
func (q *Queue) readOnce() {
	ctx, cancel := context.WithTimeout(request.WithCause(q.life, request.CauseMetadata), probeTry)
	defer cancel()
	_, err := q.primary.Properties(ctx)
	q.failover.endReading(err)
	q.report()
}

// Close ends what the queue does in the background while it is failed over, and waits for its end. It may be
// called more than once, and returns nil. Messages can still be sent, and then probe the primary queue, but
// nothing else does.
func (q *Queue) Close() error {
	q.failover.close()
	q.cancel()
	q.watchers.Wait()
	return nil
}
