package faultqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// do is [call] for an operation without a result.
func (q *Queue) do(ctx context.Context, op Op, about string, id queue.ID, bad error, act func(context.Context) error) error {
	_, err := call(ctx, q, op, about, id, bad, func(ctx context.Context) (struct{}, error) { return struct{}{}, act(ctx) })
	return err
}

// call runs one operation with its fault. The fault depends on subject; errors name id.
func call[T any](ctx context.Context, q *Queue, op Op, about string, id queue.ID, bad error, act func(context.Context) (T, error)) (result T, _ error) {
	if bad == nil {
		bad = queue.CheckName(q.inner.Name().Queue)
	}
	if bad != nil { // a client would not send it, so it has no fault
		return result, queue.Explain(bad, string(op), q.inner.Name(), id)
	}
	if ctx.Err() != nil && !q.injector.isDead() {
		return act(ctx) // the inner queue returns the error
	}
	f := q.injector.begin(callKey{q.inner.Name().Queue, op, about})
	if f.fault == Late {
		sendLate(ctx, q.injector, f, id, act)
	}
	result, count, err := inject(ctx, q.injector, f, act)
	q.injector.record(f, messageID(result, id), count, err)
	if injected := (*queue.Error)(nil); errors.As(err, &injected) && injected.Op == "" {
		err = queue.Explain(injected, string(op), q.inner.Name(), id)
	}
	return result, err
}

// messageID returns the id of the message that a result is about: an enqueue creates one.
func messageID(result any, id queue.ID) queue.ID {
	if created, ok := result.(queue.Message); ok {
		return created.ID
	}
	return id
}

func messageCount(result any) int {
	batch, _ := result.([]queue.Message)
	return len(batch)
}

// sendLate lets a request arrive after its caller has given up, even if the process has died: it
// has left the process. [Queue.Wait] waits for it.
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
		result, err := act(ctx)
		w.record(f, messageID(result, id), messageCount(result), err)
	}()
}

// finishLate counts an arrival of a late request.
func (w *injector) finishLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late--; w.late == 0 {
		w.lateDone.Broadcast()
	}
}

// waitLate returns when no late request is in flight.
func (w *injector) waitLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.late > 0 {
		w.lateDone.Wait()
	}
}

// inject runs one request with its fault. It also returns the number of messages in the response,
// even if that was lost.
func inject[T any](ctx context.Context, w *injector, f injection, act func(context.Context) (T, error)) (result T, count int, _ error) {
	var nothing T
	if f.fault == Death {
		if f.kills {
			if err := w.transit(ctx, f.requestDelay); err != nil {
				return nothing, 0, err
			}
			defer w.kill()
		}
		if f.acts {
			_, _ = act(ctx) // the response is lost
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
		_, _ = act(ctx) // the first response is lost
		if err = w.transit(ctx, f.duplicateDelay); err != nil {
			return nothing, 0, err
		}
		result, err = act(ctx)
	default:
		result, err = act(ctx)
	}
	count = messageCount(result)
	if err := w.transit(ctx, f.responseDelay); err != nil {
		return nothing, count, err
	}
	if failed := f.fault.asError(); failed != nil {
		return nothing, count, failed
	}
	return result, count, err
}

// transit waits while a request or a response is in flight. It fails if the process dies or ctx
// ends meanwhile.
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
			return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the wait for the response ended", Err: err}
		}
	}
	if w.isDead() {
		return Death.asError()
	}
	return nil
}
