package roles

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// memoryBudget is how many bytes of pictures the roles of one process hold at a
// time. With the largest tile library, the runtime and what the collector has not
// yet found, the process stays below 1 GiB.
const memoryBudget = 500_000_000

// memory is a budget that handlers share.
type memory struct{ bytes *semaphore.Weighted }

func newMemory() memory { return memory{semaphore.NewWeighted(memoryBudget)} }

// take waits until so much is free and returns how to give it back. What is more
// than the whole budget takes all of it: it is then worked on alone.
func (m memory) take(ctx context.Context, bytes int64) (free func(), err error) {
	bytes = min(bytes, memoryBudget)
	if err := m.bytes.Acquire(ctx, bytes); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { m.bytes.Release(bytes) }, nil
}
