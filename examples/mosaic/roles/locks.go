package roles

import (
	"context"
	"sync"

	"github.com/google/uuid"
)

// locks are locks by request. Unlike for a mutex, waiting ends with the context.
type locks struct {
	mu   sync.Mutex
	held map[uuid.UUID]chan struct{} // closed on unlock; guarded by mu
}

func newLocks() *locks { return &locks{held: make(map[uuid.UUID]chan struct{})} }

func (l *locks) lock(ctx context.Context, id uuid.UUID) (unlock func(), err error) {
	mine := make(chan struct{})
	for {
		l.mu.Lock()
		other, taken := l.held[id]
		if !taken {
			l.held[id] = mine
		}
		l.mu.Unlock()
		if !taken {
			return func() {
				l.mu.Lock()
				delete(l.held, id)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
