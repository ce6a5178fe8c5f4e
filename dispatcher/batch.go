package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// BatchHandler does several jobs in one go. It returns nil if all succeeded, and otherwise
// one result for each message, in their order, each meaning what it means for a [Handler].
// Any other number of results, none at all in a slice that is not nil among them, is an
// error for every message. When all of them failed for one reason, such as a transaction that
// was not committed, return slices.Repeat([]error{err}, len(ms)).
//
// The context has the values of the first message's, and ends when those of all its
// messages have ended, with the cause of the last.
type BatchHandler[T any] func(ctx context.Context, ms []*Message[T]) []error

// errResults is what every message of a batch gets when its handler returned another
// number of results.
var errResults = errors.New("batch handler returned the wrong number of results")

// wrongNumber is what every message of a batch gets whose handler returned another number of
// results. It has the text of the first error among them, which may be what went wrong, but
// does not wrap it: nobody knows which message it is for.
func wrongNumber(results []error, messages int) error {
	err := fmt.Errorf("%w: %d for %d messages (nil if all succeeded, or one for each)", errResults, len(results), messages)
	for _, result := range results {
		if result != nil {
			return fmt.Errorf("%w; the first error: %s", err, fmt.Sprint(result))
		}
	}
	return err
}

// Batch returns a handler that collects messages and hands them to h: as soon as there
// are size of them, or when the first has waited this long. It does not wait for company
// that cannot come or would come too late: a batch begins at once when the worker is
// stopping, when messages are held back because everything fails, when the context of one
// of its messages ends, and when half of the first one's time-out has passed. A message whose
// context has ended before its batch begins is left out.
//
// Every message of a batch keeps its own slot, lease and settlement, so Concurrency must
// be at least size for batches to fill (a [*SetupError] warns when it is not), and is what
// bounds how many batches run at once. A
// panic in h is an error for all of its batch. Size under 1 counts as 1; a negative wait as
// none.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	b := &batcher[T]{handler: h, size: max(size, 1), wait: max(wait, 0)}
	return b.handle
}

// batcher fills one batch at a time; those that are full run on their own.
type batcher[T any] struct {
	handler BatchHandler[T]
	size    int
	wait    time.Duration
	warned  atomic.Bool // that batches never fill

	mu   sync.Mutex
	open *batch[T] // the one that fills; nil when none does; guarded by mu
}

// batch is a batch from its first message to its results.
type batch[T any] struct {
	members []*member[T]  // guarded by batcher.mu until begun is closed, constant then
	begun   chan struct{} // closed when nobody joins any more
	done    chan struct{} // closed when the results are there
}

// member is a message of a batch.
type member[T any] struct {
	ctx     context.Context
	message *Message[T]
	role    role  // constant once the batch has begun
	result  error // constant once the batch is done; of one that is left out, once it has begun
}

// part is what becomes of a member when its batch begins.
type role uint8

const (
	follower role = iota
	leader        // its goroutine runs the handler, so that none is started which nobody owns
	leftOut       // its context has ended
)

// handle is the handler of one message.
func (b *batcher[T]) handle(ctx context.Context, m *Message[T]) error {
	b.warn(m)
	mine := &member[T]{ctx: ctx, message: m}
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

// warn tells once that batches never fill, because fewer messages are handled at once.
func (b *batcher[T]) warn(m *Message[T]) {
	if m.delivery == nil || b.warned.Load() {
		return
	}
	d := m.delivery.dispatcher
	slots := d.slots.capacity()
	if slots >= b.size || !b.warned.CompareAndSwap(false, true) {
		return
	}
	d.options.OnError(&SetupError{Queue: d.name, Detail: fmt.Sprintf(
		"batches of %d never fill with a Concurrency of %d, and wait %v each: raise Concurrency to a multiple of %d, or lower the size",
		b.size, slots, b.wait, b.size)})
}

// join puts the message into the batch that fills, which begins when it is full.
func (b *batcher[T]) join(m *member[T]) (in *batch[T], first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = &batch[T]{begun: make(chan struct{}), done: make(chan struct{})}
		first = true
	}
	in = b.open
	in.members = append(in.members, m)
	if len(in.members) == b.size {
		b.begin(in)
	}
	return in, first
}

// fill waits until the batch has begun, and begins it when the member has a reason: its
// context or its worker comes to an end, nobody else is let through, or, if it is the
// first, it has waited long enough.
func (b *batcher[T]) waitToBegin(in *batch[T], m *member[T], first bool) {
	from := batchSignalsFrom(m.ctx)
	var waited <-chan time.Time
	if first {
		timer := time.NewTimer(maxWait(m.ctx, b.wait))
		defer timer.Stop()
		waited = timer.C
	}
	select {
	case <-in.begun:
		return
	case <-waited:
	case <-m.ctx.Done():
	case <-from.stopping:
	case <-from.heldBack():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == in {
		b.begin(in)
	}
}

// begin lets nobody join any more, and says who leads and who leaves. Requires mu.
func (b *batcher[T]) begin(in *batch[T]) {
	b.open = nil
	led := false
	for _, m := range in.members {
		switch {
		case m.ctx.Err() != nil:
			m.role, m.result = leftOut, fmt.Errorf("its batch had not begun: %w", context.Cause(m.ctx))
		case !led:
			m.role, led = leader, true
		}
	}
	close(in.begun)
}

// run calls the handler for those that have not left, one of whom calls it.
func (b *batcher[T]) run(in *batch[T]) {
	defer close(in.done)
	var messages []*Message[T]
	var contexts []context.Context
	var stay []*member[T]
	for _, m := range in.members {
		if m.role != leftOut {
			messages, contexts, stay = append(messages, m.message), append(contexts, m.ctx), append(stay, m)
		}
	}
	fail := func(err error) {
		for _, m := range stay {
			m.result = err
		}
	}
	fail(errGoexit) // for everybody, should the handler end this goroutine
	defer func() {
		if p := recover(); p != nil {
			fail(&PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	all, cancel := joinContexts(contexts)
	defer cancel(nil)
	results := b.handler(all, messages)
	switch {
	case results == nil:
		fail(nil)
	case len(results) != len(stay):
		fail(wrongNumber(results, len(stay)))
	default:
		for i, m := range stay {
			m.result = results[i]
		}
	}
}

// collecting is what a handler that collects messages must know of the dispatcher that it
// runs in. The zero value, of none, knows nothing.
type batchSignals struct {
	stopping <-chan struct{} // closed when no handler is started any more
	breaker  *breaker
}

type batchSignalsKey struct{}

// collectingFrom returns what the dispatcher of a handler with that context lets it know.
func batchSignalsFrom(ctx context.Context) batchSignals {
	from, _ := ctx.Value(batchSignalsKey{}).(batchSignals)
	return from
}

// heldBack returns what is closed when no company is let through.
func (c batchSignals) heldBack() <-chan struct{} {
	if c.breaker == nil {
		return nil
	}
	return c.breaker.openSignal()
}

// patience bounds a wait for company by half of what the handler's time-out leaves.
func maxWait(ctx context.Context, wait time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(wait, time.Until(deadline)/2)
	}
	return wait
}

// together returns a context with the values of the first that ends when all have
// ended.
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
