package roles

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// memoryBudget limits the bytes of pictures that the roles of one process hold at a time. With the
// largest tile library, the runtime and garbage not yet collected the process stays below 1 GiB.
const memoryBudget = 500_000_000

// memory is a memory budget shared by handlers.
type memory struct{ bytes *semaphore.Weighted }

func newMemory() memory { return memory{semaphore.NewWeighted(memoryBudget)} }

// take waits until that many bytes are free and returns a function that releases them. A request for
// more than the whole budget takes all of it, so that nothing else is held meanwhile.
func (m memory) take(ctx context.Context, bytes int64) (free func(), err error) {
	bytes = min(bytes, memoryBudget)
	if err := m.bytes.Acquire(ctx, bytes); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.bytes.Release(bytes) }, nil
}
