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

// BatchHandler does several jobs in one go. It returns one result for each message, in
// their order, each meaning what it means for a [Handler]; nil for all of them if all
// succeeded. Any other number of results is an error for every message.
//
// The context ends when those of all its messages have ended, with the cause of the
// last.
type BatchHandler[T any] func(ctx context.Context, ms []*Message[T]) []error

// errResults is what every message of a batch gets when its handler returned another
// number of results.
var errResults = errors.New("batch handler returned the wrong number of results")

// Batch returns a handler that collects messages and hands them to h: as soon as there
// are size of them, or when the first has waited this long. Every message of a batch
// keeps its own slot, lease and settlement, so Concurrency must be at least size for
// batches to fill, and is what bounds how many batches run at once. A panic in h is an
// error for all of its batch. Size under 1 counts as 1; a negative wait as none.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	b := &batcher[T]{handler: h, size: max(size, 1), wait: max(wait, 0)}
	return b.handle
}

// batcher fills one batch at a time; those that are full run on their own.
type batcher[T any] struct {
	handler BatchHandler[T]
	size    int
	wait    time.Duration

	mu   sync.Mutex
	open *batch[T] // the one that fills; nil when none does; guarded by mu
}

// batch is a batch from its first message to its results.
type batch[T any] struct {
	messages []*Message[T] // complete once it is closed
	contexts []context.Context
	full     chan struct{} // closed when it is complete
	done     chan struct{} // closed when the results are there
	results  []error
}

// handle is the handler of one message. The first message of a batch leads it: its
// goroutine waits for the others and runs the handler, so no goroutine is started that
// nobody owns.
func (b *batcher[T]) handle(ctx context.Context, m *Message[T]) error {
	mine, place := b.join(ctx, m)
	if place == 0 {
		b.lead(ctx, mine)
	} else {
		<-mine.done
	}
	return mine.results[place]
}

// join puts the message into the batch that fills, and closes that when it is full.
func (b *batcher[T]) join(ctx context.Context, m *Message[T]) (mine *batch[T], place int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = &batch[T]{full: make(chan struct{}), done: make(chan struct{})}
	}
	mine, place = b.open, len(b.open.messages)
	mine.messages = append(mine.messages, m)
	mine.contexts = append(mine.contexts, ctx)
	if len(mine.messages) == b.size {
		b.open = nil
		close(mine.full)
	}
	return mine, place
}

// lead waits until the batch is full or has waited, and runs it.
func (b *batcher[T]) lead(ctx context.Context, mine *batch[T]) {
	timer := time.NewTimer(b.wait)
	defer timer.Stop()
	select {
	case <-mine.full:
	case <-timer.C:
	case <-ctx.Done(): // its own lease, or the shutdown, does not wait
	}
	b.mu.Lock()
	if b.open == mine {
		b.open = nil
	}
	b.mu.Unlock()

	defer close(mine.done)
	// For everybody, also if the handler panics or ends this goroutine.
	mine.results = make([]error, len(mine.messages))
	fill(mine.results, errGoexit)
	defer func() {
		if p := recover(); p != nil {
			fill(mine.results, &PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	all, cancel := together(mine.contexts)
	defer cancel(nil)
	switch results := b.handler(all, mine.messages); len(results) {
	case len(mine.messages):
		copy(mine.results, results)
	case 0:
		clear(mine.results)
	default:
		fill(mine.results, fmt.Errorf("%w: %d for %d messages", errResults, len(results), len(mine.messages)))
	}
}

func fill(results []error, err error) {
	for i := range results {
		results[i] = err
	}
}

// together returns a context with the values of the first that ends when all have
// ended.
func together(contexts []context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(contexts[0]))
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
