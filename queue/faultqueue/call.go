package faultqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// do is [call] for what answers nothing.
func (q *Queue) do(ctx context.Context, op Op, about string, id queue.ID, bad error, act func(context.Context) error) error {
	_, err := call(ctx, q, op, about, id, bad, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

// call lets one operation have its fate. about is what it depends on, id what an
// error calls it.
func call[T any](ctx context.Context, q *Queue, op Op, about string, id queue.ID, bad error, act func(context.Context) (T, error)) (answer T, _ error) {
	if bad == nil {
		bad = queue.CheckName(q.inner.Name().Queue)
	}
	if bad != nil { // no client sends it, so nothing can happen to it
		return answer, queue.Explain(bad, string(op), q.inner.Name(), id)
	}
	if ctx.Err() != nil && !q.world.dead() {
		return act(ctx) // which says so in its own words
	}
	f := q.world.begin(key{q.inner.Name().Queue, op, about})
	if f.fault == Late {
		delay(ctx, q.world, f, id, act)
	}
	answer, count, err := suffer(ctx, q.world, f, act)
	q.world.record(f, whose(answer, id), count, err)
	if injected := (*queue.Error)(nil); errors.As(err, &injected) && injected.Op == "" {
		err = queue.Explain(injected, string(op), q.inner.Name(), id)
	}
	return answer, err
}

// whose is the message that an answer is about: an enqueue makes one.
func whose(answer any, id queue.ID) queue.ID {
	if made, ok := answer.(queue.Message); ok {
		return made.ID
	}
	return id
}

// held is how many messages an answer hands out.
func held(answer any) int {
	batch, _ := answer.([]queue.Message)
	return len(batch)
}

// delay lets a request arrive when its caller has given up, whatever becomes of the
// caller: it has left the process. The world waits for it, see [Queue.Wait].
func delay[T any](ctx context.Context, w *world, f fate, id queue.ID, act func(context.Context) (T, error)) {
	ctx = context.WithoutCancel(ctx)
	w.mu.Lock()
	w.late++
	w.mu.Unlock()
	go func() {
		defer w.land()
		time.Sleep(f.there + f.back + f.late)
		f.started, f.fault = time.Since(w.birth), Arrival
		if w.missing(f.started) {
			w.record(f, id, 0, Missing.failure())
			return
		}
		answer, err := act(ctx)
		w.record(f, whose(answer, id), held(answer), err)
	}()
}

// land counts an arrival.
func (w *world) land() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late--; w.late == 0 {
		w.arrived.Broadcast()
	}
}

// wait returns when nothing late is under way.
func (w *world) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.late > 0 {
		w.arrived.Wait()
	}
}

// suffer is the way of one request and its answer. Beside the answer it returns
// how many messages were in it, also when it was lost.
func suffer[T any](ctx context.Context, w *world, f fate, act func(context.Context) (T, error)) (answer T, count int, _ error) {
	var nothing T
	if f.fault == Death {
		if f.kills {
			if err := w.travel(ctx, f.there); err != nil {
				return nothing, 0, err
			}
			defer w.kill()
		}
		if f.acts {
			_, _ = act(ctx) // whatever it answers, nobody hears it
		}
		return nothing, 0, Death.failure()
	}
	if err := w.travel(ctx, f.there); err != nil {
		return nothing, 0, err
	}
	var err error
	switch f.fault {
	case Throttled, Unavailable, LostRequest, Missing, Late:
	case Duplicate:
		_, _ = act(ctx) // the answer is lost to all but who asks again
		if err = w.travel(ctx, f.between); err != nil {
			return nothing, 0, err
		}
		answer, err = act(ctx)
	default:
		answer, err = act(ctx)
	}
	count = held(answer)
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
