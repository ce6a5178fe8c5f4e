package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup"
)

// instant is a time in nanoseconds, of the clock that all processes share; see now.
type instant int64

// job is what is sent. Jobs are numbered from 0.
type job struct{ Number int }

// assignment says what a worker consumes.
type assignment struct {
	Servers   servers
	Transport string // by name
	Queue     string
	Jobs      int // how many are sent in all

	bus *wakeup.Bus // for a sender and a worker in one process
}

// consumer is a worker in this process or in another.
type consumer interface {
	// roundTrips measures dequeues of one message from another queue, each after a rest of the pace.
	roundTrips(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error)

	// starts waits until the handlers of so many jobs have begun, and returns when each did, by the job's
	// number; 0 for those that have not.
	starts(ctx context.Context, n int) ([]instant, error)

	// stop ends the worker.
	stop() error
}

// worker is a listener with the defaults whose handler only notes the time.
type worker struct {
	assignment assignment
	queue      *azurequeue.Queue
	begun      []atomic.Int64 // when the handler of a job first began, by its number
	count      atomic.Int64   // of jobs that have begun
	changed    chan struct{}  // signals count
	errors     chan error     // the first of the listener
	closing    []io.Closer
	cancel     context.CancelFunc
	ended      chan struct{} // closed when the listener has ended
	failure    error         // of the listener; written before ended is closed
}

// startWorker starts a worker and waits until it listens.
func startWorker(ctx context.Context, a assignment) (_ *worker, err error) {
	w := &worker{assignment: a, begun: make([]atomic.Int64, a.Jobs), changed: make(chan struct{}, 1), errors: make(chan error, 1), ended: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.queue, err = azurequeue.Open(a.Servers.Queue, a.Queue, nil); err != nil {
		return nil, err
	}
	w.closing = append(w.closing, w.queue)
	o := &listener.Options[job]{
		Logger:  slog.New(slog.DiscardHandler),
		OnError: func(err error) { waiting.Signal(w.errors, err) },
	}
	how, err := transportByName(a.Transport)
	if err != nil {
		return nil, err
	}
	if err := how.receive(w, o); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	l := listener.New(w.queue, w.handle, o)
	go func() {
		defer close(w.ended)
		w.failure = l.Run(ctx)
	}()
	for !l.State().Ready() {
		if !waiting.For(time.Millisecond, w.ended) {
			return nil, errors.Join(errors.New("the listener has ended"), w.stop())
		}
	}
	return w, nil
}

func (w *worker) handle(_ context.Context, m *listener.Message[job]) error {
	at := now()
	n := m.Body.Number
	if n < 0 || n >= len(w.begun) {
		return listener.Poison(fmt.Errorf("there is no job %d: %d are sent", n, len(w.begun)))
	}
	if !w.begun[n].CompareAndSwap(0, int64(at)) {
		return nil // it came twice
	}
	w.count.Add(1)
	waiting.Signal(w.changed, struct{}{})
	return nil
}

// roundTrips implements consumer. The messages are put before the rest, one by one, and deleted after.
func (w *worker) roundTrips(ctx context.Context, n int, pace time.Duration) ([]time.Duration, error) {
	q := w.queue.Sibling("-round-trips")
	if err := q.Create(ctx, nil); err != nil {
		return nil, err
	}
	var all []time.Duration
	for range n {
		if _, err := q.Enqueue(ctx, `{"Number":0}`, nil); err != nil {
			return nil, err
		}
		waiting.For(pace, ctx.Done())
		begin := now()
		batch, err := q.Dequeue(ctx, queue.MaxBatch, time.Minute)
		took := time.Duration(now() - begin)
		if err == nil && len(batch) != 1 {
			err = fmt.Errorf("a dequeue of the only message returned %d", len(batch))
		}
		if err == nil {
			err = q.Delete(ctx, batch[0].Lease)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, took)
	}
	return all, nil
}

// starts implements consumer.
func (w *worker) starts(ctx context.Context, n int) ([]instant, error) {
	for w.count.Load() < int64(n) {
		select {
		case <-w.changed:
		case <-w.ended:
			return nil, errors.New("the listener has ended")
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d jobs were handled: %w", w.count.Load(), n, ctx.Err())
		}
	}
	all := make([]instant, len(w.begun))
	for i := range all {
		all[i] = instant(w.begun[i].Load())
	}
	return all, nil
}

// stop implements consumer.
func (w *worker) stop() error {
	w.cancel()
	<-w.ended
	select {
	case err := <-w.errors:
		w.failure = errors.Join(w.failure, err)
	default:
	}
	return errors.Join(w.failure, w.close())
}

// close closes what the worker has opened, the last first.
func (w *worker) close() error {
	var errs []error
	for _, c := range slices.Backward(w.closing) {
		errs = append(errs, c.Close())
	}
	w.closing = nil
	return errors.Join(errs...)
}
