package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/table"
)

// ErrContended means that other workers came first each time. Nothing is lost: the same call may succeed later.
var ErrContended = errors.New("other workers came first each time")

// attempts is how often a step is made at most. Of all workers that contend for an entity one comes first, so with the waits
// between them a step needs few even if a hundred contend.
const attempts = 40

// contend repeats a step, which reads and then changes entities, until no other worker interferes. [table.Modify] does the same
// for one entity.
func (x *Index) contend(ctx context.Context, step func() error) error {
	for n := 1; ; n++ {
		err := step()
		if !outrun(err) {
			return err
		}
		x.conflicts.Add(1)
		if n == attempts {
			return fmt.Errorf("%w, %d times: %s", ErrContended, n, err.Error()) // not wrapped: it is no reason to begin again
		}
		if err := waitForOthers(ctx, n); err != nil {
			return err
		}
	}
}

// outrun reports whether a step failed because another worker has changed, made or deleted the entity since it was read.
func outrun(err error) bool {
	return errors.Is(err, table.ErrPreconditionFailed) || errors.Is(err, table.ErrExists) || errors.Is(err, table.ErrMissing)
}

// waitForOthers waits for a random part of 2 ms, doubled with each attempt up to 500 ms.
func waitForOthers(ctx context.Context, attempt int) error {
	longest := min(time.Millisecond<<min(attempt, 10), 500*time.Millisecond)
	select {
	case <-time.After(rand.N(longest) + 1):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
