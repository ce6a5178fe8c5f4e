package listener

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// repeating is a queue whose dequeues fail with these errors in order, and then work. It records
// how often each was repeated.
type repeating struct {
	queue.Queue
	errs    []error
	repeats []int
}

func (q *repeating) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	q.repeats = append(q.repeats, retry.Repeats(ctx))
	if i := len(q.repeats) - 1; i < len(q.errs) && q.errs[i] != nil {
		return nil, q.errs[i]
	}
	return q.Queue.Dequeue(ctx, n, v)
}

// B-01: a poll tells its queue how many before it failed, so that it may take longer. A success
// starts the count anew.
func TestAPollKnowsHowManyBeforeItFailed(t *testing.T) {
	bubble(t, func(b *bundle) {
		unknown := &queue.Error{Op: "dequeue", Kind: queue.ErrOutcomeUnknown}
		q := &repeating{Queue: b.queue, errs: []error{nil, unknown, unknown, unknown, nil, unknown}}
		b.run(New(q, nothing, options()))
		after(10 * time.Second)
		b.finished()
		if want := []int{0, 0, 1, 2, 3, 0, 1, 0}; len(q.repeats) < len(want) || !slices.Equal(q.repeats[:len(want)], want) {
			t.Errorf("polls were repeated %v times, want %v", q.repeats, want)
		}
	})
}
