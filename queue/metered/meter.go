package metered

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

// Meter counts the requests of the queues that it wraps. The zero value has counted nothing and is
// ready for use; it takes 2 KB. It must not be copied. It is safe for concurrent use.
type Meter struct {
	lines    [operations][request.CauseCount]atomic.Pointer[line] // nil until there is such a request
	messages [request.CauseCount]atomic.Int64                     // that dequeues returned, by cause
}

// line has the counts of the first requests of an operation and a cause, and then of the repeated ones, by outcome.
type line [2 * outcomes]atomic.Int64

// line returns the counts of an operation and a cause.
func (m *Meter) line(o Operation, c Cause) *line {
	at := &m.lines[o][c]
	if at.Load() == nil {
		at.CompareAndSwap(nil, new(line)) // or another goroutine was the first
	}
	return at.Load()
}

func (m *Meter) count(ctx context.Context, o Operation, got outcome) {
	if got == unsent {
		return
	}
	i := got
	if Repeats(ctx) > 0 {
		i += outcomes
	}
	m.line(o, m.cause(ctx))[i].Add(1)
}

// cause returns the cause of requests with this context. One that does not exist is unknown.
func (m *Meter) cause(ctx context.Context) Cause {
	if c := CauseOf(ctx); int(c) < request.CauseCount {
		return c
	}
	return CauseUnknown
}

// Counts returns what was counted so far. Requests count when they have ended. While requests are
// sent the counts of different lines are not of one instant, but none ever goes down.
func (m *Meter) Counts() Counts {
	var counts Counts
	all := Causes()
	for o := range operations {
		for _, c := range all {
			line := Line{Operation: o, Cause: c}
			if o == Dequeue {
				line.Messages = m.messages[c].Load() // before the requests, so that none has more than it could
			}
			counted := m.lines[o][c].Load()
			if counted == nil {
				continue
			}
			for i := range outcomes {
				line.add(i, counted[i].Load(), counted[outcomes+i].Load())
			}
			if line.Requests > 0 {
				counts = append(counts, line)
			}
		}
	}
	return counts
}

// Operation is a method of a queue that sends a request.
type Operation uint8

// The operations.
const (
	Enqueue Operation = iota
	Dequeue
	Peek
	Update
	Delete
	Properties
	Create
	SetMetadata
	Clear
	Drop

	operations // how many there are
)

var operationNames = [operations]string{
	"enqueue", "dequeue", "peek", "update", "delete", "properties", "create", "setmetadata", "clear", "drop",
}

// String returns the name of the operation, such as "dequeue".
func (o Operation) String() string {
	if o >= operations {
		return fmt.Sprintf("Operation(%d)", int(o))
	}
	return operationNames[o]
}

// MarshalText returns the name of the operation, for JSON and logs. One that does not exist is an
// error.
func (o Operation) MarshalText() ([]byte, error) {
	if o >= operations {
		return nil, fmt.Errorf("metered: %v is no operation", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText parses what [Operation.MarshalText] returns.
func (o *Operation) UnmarshalText(text []byte) error {
	if i := slices.Index(operationNames[:], string(text)); i >= 0 {
		*o = Operation(i)
		return nil
	}
	return fmt.Errorf("metered: no operation has the name %q", text)
}

// outcome is how a request ended. Each request has one, so that it costs one addition to count it.
type outcome uint8

const (
	done      outcome = iota
	empty             // a dequeue without messages
	throttled         // the service was busy
	unreached         // the service was not reached, or there was no token to ask it with
	failed            // any other error
	outcomes          // how many there are

	unsent = outcomes // nothing was sent: the request does not count
)

// outcomeOf returns how a request with this error ended.
func outcomeOf(err error) outcome {
	if err == nil {
		return done
	}
	var e *queue.Error
	answered := errors.As(err, &e) && e.Status != 0
	switch {
	case errors.Is(err, queue.ErrThrottled):
		return throttled
	case answered || errors.Is(err, queue.ErrOutcomeUnknown):
		return failed
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrUnauthorized):
		return unreached
	// By the port, a context that had ended sends nothing and leaves no outcome unknown, and
	// arguments are refused without a request where no response says so. A limit sends nothing either.
	case errors.Is(err, queue.ErrLimited), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge):
		return unsent
	}
	return failed
}

// Wrap returns a queue whose requests, and those of its siblings, the meter counts. It is a
// [queue.Manager] if q is one.
func (m *Meter) Wrap(q queue.Queue) queue.Queue {
	counted := counted{q, m}
	if inner, ok := q.(queue.Manager); ok {
		return managed{counted, inner}
	}
	return counted
}

// counted is a queue whose requests are counted.
type counted struct {
	inner queue.Queue
	meter *Meter
}

var (
	_ queue.Queue   = counted{}
	_ queue.Manager = managed{}
)

// Unwrap returns the queue underneath, for errors that name its type.
func (c counted) Unwrap() queue.Queue { return c.inner }

// EmptyAfter returns what short batches of the queue underneath show: see [driver.EmptyAfter].
func (c counted) EmptyAfter() int { return driver.EmptyAfter(c.inner) }

// Name implements [queue.Queue].
func (c counted) Name() queue.Name { return c.inner.Name() }

// Sibling implements [queue.Queue].
func (c counted) Sibling(suffix string) queue.Queue { return c.meter.Wrap(c.inner.Sibling(suffix)) }

// Enqueue implements [queue.Queue].
func (c counted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	sent, err := c.inner.Enqueue(ctx, text, o)
	got := outcomeOf(err)
	if errors.Is(err, queue.ErrQueueMissing) && c.meter.cause(ctx) == CausePoison {
		got = done // the first message of a poison queue, which is created next
	}
	c.meter.count(ctx, Enqueue, got)
	return sent, err
}

// Dequeue implements [queue.Queue].
func (c counted) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := c.inner.Dequeue(ctx, n, visibility)
	got := outcomeOf(err)
	if got == done && len(batch) == 0 {
		got = empty
	}
	c.meter.count(ctx, Dequeue, got)
	if len(batch) > 0 {
		c.meter.messages[c.meter.cause(ctx)].Add(int64(len(batch)))
	}
	return batch, err
}

// Peek implements [queue.Queue].
func (c counted) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	batch, err := c.inner.Peek(ctx, n)
	c.meter.count(ctx, Peek, outcomeOf(err))
	return batch, err
}

// Update implements [queue.Queue].
func (c counted) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := c.inner.Update(ctx, l, text, visibility)
	c.meter.count(ctx, Update, outcomeOf(err))
	return fresh, err
}

// Delete implements [queue.Queue].
func (c counted) Delete(ctx context.Context, l queue.Lease) error {
	err := c.inner.Delete(ctx, l)
	c.meter.count(ctx, Delete, outcomeOf(err))
	return err
}

// Properties implements [queue.Queue].
func (c counted) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := c.inner.Properties(ctx)
	c.meter.count(ctx, Properties, outcomeOf(err))
	return p, err
}

// Create implements [queue.Queue].
func (c counted) Create(ctx context.Context, metadata map[string]string) error {
	err := c.inner.Create(ctx, metadata)
	c.meter.count(ctx, Create, outcomeOf(err))
	return err
}

// managed is a [queue.Manager] whose requests are counted.
type managed struct {
	counted
	manager queue.Manager
}

// SetMetadata implements [queue.Manager].
func (m managed) SetMetadata(ctx context.Context, metadata map[string]string) error {
	err := m.manager.SetMetadata(ctx, metadata)
	m.meter.count(ctx, SetMetadata, outcomeOf(err))
	return err
}

// Clear implements [queue.Manager].
func (m managed) Clear(ctx context.Context) error {
	err := m.manager.Clear(ctx)
	m.meter.count(ctx, Clear, outcomeOf(err))
	return err
}

// Drop implements [queue.Manager].
func (m managed) Drop(ctx context.Context) error {
	err := m.manager.Drop(ctx)
	m.meter.count(ctx, Drop, outcomeOf(err))
	return err
}
