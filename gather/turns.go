package gather

import (
	"context"
	"sync"
)

// turns let one caller at a time through for each id. Unlike for a mutex, waiting ends with the context.
type turns struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the turn ends; guarded by mu
}

func newTurns() *turns { return &turns{held: make(map[string]chan struct{})} }

// take waits for the turn, which lasts until release is called.
func (t *turns) take(ctx context.Context, id string) (release func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other, taken := t.held[id]
		if !taken {
			t.held[id] = mine
		}
		t.mu.Unlock()
		if !taken {
			return func() {
				t.mu.Lock()
				delete(t.held, id)
				t.mu.Unlock()
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
