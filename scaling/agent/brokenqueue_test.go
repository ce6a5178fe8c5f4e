package agent_test

import (
	"context"
	"sync"

	"github.com/millrace/millrace/queue"
)

// breakable is a queue whose reading calls fail, hang or panic as a test likes.
type breakable struct {
	queue.Queue

	mu   sync.Mutex
	down func(ctx context.Context) error // guarded by mu; nil: it works
	read int                             // guarded by mu: calls
}

// breaks lets all calls from now on do this first; nil mends it.
func (b *breakable) breaks(f func(ctx context.Context) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.down = f
}

// calls returns how many calls there were since the last time.
func (b *breakable) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.read
	b.read = 0
	return n
}

func (b *breakable) first(ctx context.Context) error {
	b.mu.Lock()
	f := b.down
	b.read++
	b.mu.Unlock()
	if f == nil {
		return nil
	}
	return f(ctx)
}

func (b *breakable) Properties(ctx context.Context) (queue.Properties, error) {
	if err := b.first(ctx); err != nil {
		return queue.Properties{}, err
	}
	return b.Queue.Properties(ctx)
}

func (b *breakable) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	if err := b.first(ctx); err != nil {
		return nil, err
	}
	return b.Queue.Peek(ctx, n)
}

// fails is a call that fails with this error.
func fails(err error) func(context.Context) error {
	return func(context.Context) error { return err }
}
