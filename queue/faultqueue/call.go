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
	if ctx.Err() != nil && !q.injector.isDead() {
		return act(ctx) // which says so in its own words
	}
	f := q.injector.begin(callKey{q.inner.Name().Queue, op, about})
	if f.fault == Late {
		sendLate(ctx, q.injector, f, id, act)
	}
	answer, count, err := inject(ctx, q.injector, f, act)
	q.injector.record(f, messageID(answer, id), count, err)
	if injected := (*queue.Error)(nil); errors.As(err, &injected) && injected.Op == "" {
		err = queue.Explain(injected, string(op), q.inner.Name(), id)
	}
	return answer, err
}

// whose is the message that an answer is about: an enqueue makes one.
func messageID(answer any, id queue.ID) queue.ID {
	if made, ok := answer.(queue.Message); ok {
		return made.ID
	}
	return id
}

// held is how many messages an answer hands out.
func messageCount(answer any) int {
	batch, _ := answer.([]queue.Message)
	return len(batch)
}

// delay lets a request arrive when its caller has given up, whatever becomes of the
// caller: it has left the process. The world waits for it, see [Queue.Wait].
func sendLate[T any](ctx context.Context, w *injector, f injection, id queue.ID, act func(context.Context) (T, error)) {
	ctx = context.WithoutCancel(ctx)
	w.mu.Lock()
	w.late++
	w.mu.Unlock()
	go func() {
		defer w.finishLate()
		time.Sleep(f.requestDelay + f.responseDelay + f.lateDelay)
		f.started, f.fault = time.Since(w.start), Arrival
		if w.isMissing(f.started) {
			w.record(f, id, 0, Missing.asError())
			return
		}
		answer, err := act(ctx)
		w.record(f, messageID(answer, id), messageCount(answer), err)
	}()
}

// land counts an arrival.
func (w *injector) finishLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late--; w.late == 0 {
		w.lateDone.Broadcast()
	}
}

// wait returns when nothing late is under way.
func (w *injector) waitLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.late > 0 {
		w.lateDone.Wait()
	}
}

// suffer is the way of one request and its answer. Beside the answer it returns
// how many messages were in it, also when it was lost.
func inject[T any](ctx context.Context, w *injector, f injection, act func(context.Context) (T, error)) (answer T, count int, _ error) {
	var nothing T
	if f.fault == Death {
		if f.kills {
			if err := w.transit(ctx, f.requestDelay); err != nil {
				return nothing, 0, err
			}
			defer w.kill()
		}
		if f.acts {
			_, _ = act(ctx) // whatever it answers, nobody hears it
		}
		return nothing, 0, Death.asError()
	}
	if err := w.transit(ctx, f.requestDelay); err != nil {
		return nothing, 0, err
	}
	var err error
	switch f.fault {
	case Throttled, Unavailable, LostRequest, Missing, Late:
	case Duplicate:
		_, _ = act(ctx) // the answer is lost to all but who asks again
		if err = w.transit(ctx, f.duplicateDelay); err != nil {
			return nothing, 0, err
		}
		answer, err = act(ctx)
	default:
		answer, err = act(ctx)
	}
	count = messageCount(answer)
	if err := w.transit(ctx, f.responseDelay); err != nil {
		return nothing, count, err
	}
	if failed := f.fault.asError(); failed != nil {
		return nothing, count, failed
	}
	return answer, count, err
}

// travel lets the time pass that a request or an answer is under way. What is
// under way when the process dies does not arrive.
func (w *injector) transit(ctx context.Context, d time.Duration) error {
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
	if w.isDead() {
		return Death.asError()
	}
	return nil
}
