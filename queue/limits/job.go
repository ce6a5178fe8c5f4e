package limits

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
)

// job is a message that was fetched, until it can no longer be handled by this process.
type job struct {
	queue    queue.Name
	id       queue.ID
	next     *job  // of the same id; nil for none
	delivery int64 // its dequeue count
	ordinal  int
	receipt  queue.Receipt // the newest that is known
	until    time.Time     // when it must have started: the lease of the message ends
	calls    []*call       // handlers that run
	settled  bool          // no handler will start any more
	told     bool          // its handlers were told to end
	removed  bool          // it was forgotten

	first call     // the first one
	one   [1]*call // the room of calls, which seldom need more
}

// call is a handler that runs.
type call struct {
	job     *job // nil before it begins
	group   bool // of an item of a group: others may follow
	begun   time.Time
	context handlerContext
}

// jobs are those of a process, by the ids of their messages. Those of one id are linked: an id may be fetched again
// before its job is forgotten, and is known only within its queue.
type jobs map[queue.ID]*job

// all returns the jobs, which must not be removed meanwhile.
func (s jobs) all() iter.Seq[*job] {
	return func(yield func(*job) bool) {
		for _, j := range s {
			for ; j != nil; j = j.next {
				if !yield(j) {
					return
				}
			}
		}
	}
}

// find returns the job of a lease, or nil. The receipt may be unknown after an update whose response was lost.
func (s jobs) find(name queue.Name, lease queue.Lease) *job {
	var only *job
	n := 0
	for j := s[lease.ID]; j != nil; j = j.next {
		if j.queue != name {
			continue
		}
		if j.receipt == lease.Receipt {
			return j
		}
		only = j
		n++
	}
	if n == 1 {
		return only
	}
	return nil
}

func (s jobs) of(name queue.Name, id queue.ID, n int64) *job {
	for j := s[id]; j != nil; j = j.next {
		if j.queue == name && j.delivery == n {
			return j
		}
	}
	return nil
}

// handlerContext is the context of a handler. It ends with that of the delivery, when the token is lost, or when the
// handler has returned. A context that can be ended by itself costs more than all else that the limit does
// for a job, so it is derived when somebody waits for it, or when it ends early.
type handlerContext struct {
	limit    *ConcurrencyLimit
	call     *call // whose context it is
	delivery context.Context

	mu     sync.Mutex
	own    context.Context         // derived from it; nil while that is as good; guarded by mu
	cancel context.CancelCauseFunc // of own; guarded by mu
	over   bool                    // the handler has returned; guarded by mu
}

// end ends the context. The cause is nil if the handler has returned.
func (c *handlerContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cause != nil {
		c.derive()
	}
	if c.own != nil {
		c.cancel(cause)
	}
	c.over = c.over || cause == nil
}

// derive makes the context that can be ended by itself. Requires mu.
func (c *handlerContext) derive() {
	if c.own != nil {
		return
	}
	c.own, c.cancel = context.WithCancelCause(c.delivery)
	if c.over {
		c.cancel(nil)
	}
}

func (c *handlerContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		c.derive()
	}
	if c.own != nil {
		return c.own
	}
	return c.delivery
}

// Done returns the channel that is closed when it ends.
func (c *handlerContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.derive()
	return c.own.Done()
}

// Deadline returns that of the delivery.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.delivery.Deadline() }

// Err returns why it has ended, or nil.
func (c *handlerContext) Err() error { return c.current().Err() }

// handlerKey is the key with which a derived context finds the one of its handler in a limit.
type handlerKey struct{ limit *ConcurrencyLimit }

// Value returns that of the delivery, and the context itself for its handlerKey. Package context asks
// in this way for the context whose cause it wants.
func (c *handlerContext) Value(key any) any {
	if key == (handlerKey{c.limit}) {
		return c
	}
	return c.current().Value(key)
}

// giveBack makes messages visible at once for which there are no tokens any more. One that cannot be given back becomes
// visible when its lease ends.
func giveBack(ctx context.Context, q queue.Queue, batch []queue.Message) {
	ctx = request.WithCause(ctx, request.CauseGiveBack)
	for _, m := range batch {
		_, _ = q.Update(ctx, m.Lease, m.Text, 0)
	}
}
