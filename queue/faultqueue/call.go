package faultqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// do is [call] for what answers nothing.
func (q *Queue) do(ctx context.Context, op Op, about string, id queue.ID, bad error, act func() error) error {
	_, err := call(ctx, q, op, about, id, bad, func() (struct{}, error) { return struct{}{}, act() })
	return err
}

// call lets one operation have its fate. about is what it depends on, id what an
// error calls it.
func call[T any](ctx context.Context, q *Queue, op Op, about string, id queue.ID, bad error, act func() (T, error)) (answer T, _ error) {
	if bad == nil {
		bad = queue.CheckName(q.inner.Name().Queue)
	}
	if bad != nil { // no client sends it, so nothing can happen to it
		return answer, queue.Explain(bad, string(op), q.inner.Name(), id)
	}
	if ctx.Err() != nil && !q.world.dead() {
		return act() // which says so in its own words
	}
	f := q.world.begin(key{q.inner.Name().Queue, op, about})
	answer, count, err := suffer(ctx, q.world, f, act)
	if made, ok := any(answer).(queue.Message); ok {
		id = made.ID
	}
	q.world.record(f, id, count, err)
	if injected := (*queue.Error)(nil); errors.As(err, &injected) && injected.Op == "" {
		err = queue.Explain(injected, string(op), q.inner.Name(), id)
	}
	return answer, err
}

// suffer is the way of one request and its answer. Beside the answer it returns
// how many messages were in it, also when it was lost.
func suffer[T any](ctx context.Context, w *world, f fate, act func() (T, error)) (answer T, count int, _ error) {
	var nothing T
	if f.fault == Death {
		if f.kills {
			if err := w.travel(ctx, f.there); err != nil {
				return nothing, 0, err
			}
			defer w.kill()
		}
		if f.acts {
			_, _ = act() // whatever it answers, nobody hears it
		}
		return nothing, 0, Death.failure()
	}
	if err := w.travel(ctx, f.there); err != nil {
		return nothing, 0, err
	}
	var err error
	switch f.fault {
	case Throttled, Unavailable, LostRequest, Missing:
	case Duplicate:
		if answer, err = act(); err == nil {
			answer, err = act()
		}
	default:
		answer, err = act()
	}
	if batch, ok := any(answer).([]queue.Message); ok {
		count = len(batch)
	}
	if err := w.travel(ctx, f.back); err != nil {
		return nothing, count, err
	}
	if failed := f.fault.failure(); failed != nil {
		return nothing, count, failed
	}
	return answer, count, err
}

// travel lets the time pass that a request or an answer is under way. What is
// under way when the process dies does not arrive.
func (w *world) travel(ctx context.Context, d time.Duration) error {
	if d > 0 {
		arrived := time.NewTimer(d)
		defer arrived.Stop()
		select {
		case <-arrived.C:
		case <-w.died:
		case <-ctx.Done():
			err := ctx.Err()
			if cause := context.Cause(ctx); !errors.Is(cause, err) {
				err = fmt.Errorf("%w: %w", err, cause)
			}
			return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the wait for the answer ended", Err: err}
		}
	}
	if w.dead() {
		return Death.failure()
	}
	return nil
}
