package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// BatchHandler handles several messages in one call. It returns nil if all succeeded, otherwise
// one result per message in the same order, each with the meaning it has for a [Handler]. Any
// other number of results, including an empty slice that is not nil, is an error for every
// message. When all of them failed for one reason, such as a transaction that did not commit,
// return slices.Repeat([]error{err}, len(ms)).
//
// The context has the values of the first message's context. It ends when the contexts of all
// messages have ended, with the cause of the last.
type BatchHandler[T any] func(ctx context.Context, ms []*Message[T]) []error

// errResults is the error of every message of a batch handler that returned the wrong number of
// results.
var errResults = errors.New("batch handler returned the wrong number of results")

// wrongNumber returns the error for a wrong number of results. It quotes the first error among
// them, which may be the real cause, but does not wrap it: it may belong to any message.
func wrongNumber(results []error, messages int) error {
	err := fmt.Errorf("%w: %d for %d messages (nil if all succeeded, or one for each)", errResults, len(results), messages)
	for _, result := range results {
		if result != nil {
			return fmt.Errorf("%w; the first error: %s", err, fmt.Sprint(result))
		}
	}
	return err
}

// Batch returns a handler that collects messages and calls h when it has size of them, or when the
// first has waited for the given time. A batch does not wait for messages that cannot come or would
// come too late: it starts immediately when the worker stops, when a message joins it that is one of
// few because they keep failing, when the context of one of its messages ends, and when half of the
// first message's time-out has passed. A message is left out if its context ends before its batch
// starts.
//
// Inside of [EachItem] a batch also starts when all items of a group that run wait in it and no further
// one can start: for large batches give EachItem at least their size. Without EachItem the items of a
// group come one at a time, and a batch has one of each group.
//
// Every message of a batch keeps its own slot, lease and settlement. Concurrency must therefore be
// at least size for batches to fill (a [*SetupError] warns otherwise), and it bounds how many
// batches run at the same time. A panic in h is an error for its whole batch. A negative wait counts
// as zero. With a size under 1, or a nil handler, it returns nil, which is refused like any missing
// handler.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	if h == nil || size < 1 {
		return nil
	}
	b := &batcher[T]{handler: h, size: size, wait: max(wait, 0)}
	return b.handle
}

// batcher fills one batch at a time. Full batches run independently.
type batcher[T any] struct {
	handler BatchHandler[T]
	size    int
	wait    time.Duration
	warned  atomic.Bool // whether the SetupError was reported

	mu   sync.Mutex
	open *batch[T] // the batch that accepts messages; may be nil; guarded by mu
}

// batch is one call of the batch handler, from its first message to its results.
type batch[T any] struct {
	members []*member[T]  // guarded by batcher.mu until begun is closed, constant afterwards
	begun   chan struct{} // closed when no further message joins
	done    chan struct{} // closed when the results are set
}

type member[T any] struct {
	ctx     context.Context
	message *Message[T]
	each    *eachCall       // nil outside of an EachItem
	stalled <-chan struct{} // never signals outside of an EachItem: see enterBatch
	role    role            // constant once the batch has begun
	result  error           // constant once the batch is done; if left out, once it has begun
}

// role says how a member takes part when its batch begins.
type role uint8

const (
	follower role = iota
	leader        // its goroutine calls the handler, so that the call needs no goroutine of its own
	leftOut       // its context has ended
)

func (b *batcher[T]) handle(ctx context.Context, m *Message[T]) error {
	b.warn(m)
	mine := &member[T]{ctx: ctx, message: m}
	if m.Items > 0 {
		if item, ok := ctx.Value(deliveryKey{}).(*itemContext); ok {
			mine.each = item.each
		}
	}
	in, first := b.join(mine)
	b.waitToBegin(in, mine, first)
	switch mine.role {
	case leader:
		b.run(in)
	case follower:
		<-in.done
	}
	return mine.result
}

// warn reports once that batches cannot fill because Concurrency, of the listener or of the kind, is
// below their size.
func (b *batcher[T]) warn(m *Message[T]) {
	if m.delivery == nil || m.Items > 0 || b.warned.Load() { // an EachItem may run more items than there are slots
		return
	}
	d := m.delivery.dispatcher
	slots := d.slots.capacity()
	if k := m.delivery.kind; k != nil && k.options.Concurrency > 0 {
		slots = min(slots, k.options.Concurrency)
	}
	if slots >= b.size || !b.warned.CompareAndSwap(false, true) {
		return
	}
	d.options.OnError(&SetupError{Queue: d.name, Detail: fmt.Sprintf(
		"batches of %d never fill with a Concurrency of %d, and wait %v each: raise Concurrency to a multiple of %d, or lower the size",
		b.size, slots, b.wait, b.size)})
}

// join adds the message to the open batch, which begins when it is full.
func (b *batcher[T]) join(m *member[T]) (in *batch[T], first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = &batch[T]{begun: make(chan struct{}), done: make(chan struct{})}
		first = true
	}
	in = b.open
	in.members = append(in.members, m)
	if m.each != nil {
		m.stalled = m.each.enterBatch()
	}
	if len(in.members) == b.size {
		b.begin(in)
	}
	return in, first
}

// waitToBegin waits until the batch has begun. It begins the batch itself when this member has
// a reason to: its context or the worker ends, it is one of few, its group can go on only when the
// batch begins, or it is the first and has waited long enough.
func (b *batcher[T]) waitToBegin(in *batch[T], m *member[T], first bool) {
	var stopping <-chan struct{} // never signals for a message made by a test
	alone := false
	if v := m.message.delivery; v != nil {
		stopping, alone = v.dispatcher.stopping, v.admission.ticket.rationed()
	}
	if wait := maxWait(m.ctx, b.wait); !alone && (!first || wait > 0) {
		var waited <-chan time.Time
		if first {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			waited = timer.C
		}
		select {
		case <-in.begun:
			return
		case <-waited:
		case <-m.ctx.Done():
		case <-stopping:
		case <-m.stalled:
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == in {
		b.begin(in)
	}
}

// begin closes the batch to further members and assigns the roles. Requires mu.
func (b *batcher[T]) begin(in *batch[T]) {
	b.open = nil
	led := false
	for _, m := range in.members {
		if m.each != nil {
			m.each.leaveBatch()
		}
		switch {
		case m.ctx.Err() != nil:
			m.role, m.result = leftOut, fmt.Errorf("its batch had not begun: %w", context.Cause(m.ctx))
		case !led:
			m.role, led = leader, true
		}
	}
	close(in.begun)
}

// run calls the handler for the members that were not left out. One of them calls it.
func (b *batcher[T]) run(in *batch[T]) {
	var messages []*Message[T]
	var contexts []context.Context
	var stay []*member[T]
	for _, m := range in.members {
		if m.role != leftOut {
			messages, contexts, stay = append(messages, m.message), append(contexts, m.ctx), append(stay, m)
		}
	}
	all, cancel := joinContexts(contexts)
	defer cancel(nil)
	var results []error
	call := func() error {
		if results = b.handler(all, messages); results != nil && len(results) != len(stay) {
			return wrongNumber(results, len(stay))
		}
		return nil
	}
	contained(call, func(err error) {
		for i, m := range stay {
			if m.result = err; err == nil && results != nil {
				m.result = results[i]
			}
		}
		close(in.done)
	})
}

// maxWait bounds a wait for further messages by half of the time until the handler's time-out.
func maxWait(ctx context.Context, wait time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(wait, time.Until(deadline)/2)
	}
	return wait
}

// joinContexts returns a context with the values of the first that ends when all have ended.
func joinContexts(contexts []context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(withoutDelivery{context.WithoutCancel(contexts[0])})
	var left atomic.Int64
	left.Store(int64(len(contexts)))
	stops := make([]func() bool, len(contexts))
	for i, one := range contexts {
		stops[i] = context.AfterFunc(one, func() {
			if left.Add(-1) == 0 {
				cancel(context.Cause(one))
			}
		})
	}
	return ctx, func(cause error) {
		for _, stop := range stops {
			stop()
		}
		cancel(cause)
	}
}
