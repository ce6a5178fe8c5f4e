package localengine

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// Over returns a *localqueue.Engine over a store, with everything that the store has. The options are a
// *localqueue.Options. The engine takes ownership of the store, unless Over fails. Package localqueue
// sets it.
var Over func(store Store, options any) (engine any, err error)

// Queue is a queue of an engine: every queue.Manager that an engine returns is one.
type Queue interface {
	queue.Manager

	// CreateNew is Create, and reports whether the queue is new. False means that it existed with the
	// same metadata; the service then responds with 204 instead of 201.
	CreateNew(ctx context.Context, metadata map[string]string) (created bool, err error)

	// Extend changes the visibility, as Update does, and keeps the text: an update without a body.
	Extend(ctx context.Context, l queue.Lease, visibility time.Duration) (queue.Lease, error)

	// AccessPolicy returns what SetAccessPolicy stored, or nil for none. The caller owns the slice.
	AccessPolicy(ctx context.Context) ([]byte, error)

	// SetAccessPolicy stores the queue's access policy: at most 64 KiB, else it fails with
	// [queue.ErrTooLarge]. The engine does not interpret the bytes. Nil and empty mean none. A
	// drop removes it with the queue.
	SetAccessPolicy(ctx context.Context, policy []byte) error

	// Watch registers a watcher of an existing queue. It is ready, and takes the visible messages that
	// there are for told: its owner dequeues once after this call, and once after each
	// [Watcher.Ready] with true.
	Watch(ctx context.Context) (Watcher, error)
}

// Watcher hears of the visible messages of a queue, so that whoever dequeues need not poll. Close must
// be called. It is safe for concurrent use.
type Watcher interface {
	// Woken returns a channel that receives when there are messages to dequeue: the bytes of those
	// that were put since the last dequeue, or 0 if they are older. It buffers the newest wake-up:
	// any number of them is worth one dequeue.
	Woken() <-chan int64

	// Ended returns a channel that is closed when the queue was dropped or the engine closed. The
	// watcher hears nothing any more.
	Ended() <-chan struct{}

	// Ready says whether the watcher may be woken. If it was woken and there was no dequeue since,
	// Ready(false) wakes another one.
	Ready(ready bool)

	// Close removes the watcher. It returns nil, and a second Close does nothing.
	Close() error
}

// Account is an account of an engine: every queue.Account that an engine returns is one.
type Account interface {
	queue.Account

	// ServiceProperties returns what SetServiceProperties stored, or nil for none. The caller owns the
	// slice.
	ServiceProperties(ctx context.Context) ([]byte, error)

	// SetServiceProperties stores the settings of the account, which need not have a queue: at most
	// 64 KiB, else it fails with [queue.ErrTooLarge]. The engine does not interpret the bytes. Nil and
	// empty mean none.
	SetServiceProperties(ctx context.Context, properties []byte) error
}
