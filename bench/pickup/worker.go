package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup"
)

// job is what is sent. The jobs of each queue are numbered from 0.
type job struct{ Number int }

// worker is the two listeners and their senders.
type worker struct {
	plan  plan
	pool  *pool.Pool
	heavy *listener.Listener[job]

	heavySender, criticalSender *producer.Producer[job]

	flooding int64 // heavy jobs that were sent

	begun   []atomic.Pointer[time.Time] // when the handler of a critical job first began, by its number
	count   atomic.Int64                // of those that have begun
	changed chan struct{}               // signals count
	failed  chan error                  // the first error of a listener
	closing []io.Closer
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the listeners have ended
	failure error         // of the listeners; written before ended is closed
}

// startWorker starts the listeners of a row, for so many critical jobs, and waits until they are ready.
func startWorker(ctx context.Context, p plan, connection string, r row, jobs int) (_ *worker, err error) {
	w := &worker{
		plan: p, pool: pool.New(&pool.Options{Slots: p.slots}), begun: make([]atomic.Pointer[time.Time], jobs),
		changed: make(chan struct{}, 1), failed: make(chan error, 1), ended: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	reserve := 0
	if r.reserve {
		reserve = p.reserve
	}
	bus := new(wakeup.Bus)
	var critical *listener.Listener[job]
	name := fmt.Sprintf("pickup-%d", time.Now().UnixNano())
	if critical, w.criticalSender, err = w.open(ctx, connection, name+"-critical", bus, reserve, w.handleCritical); err != nil {
		return nil, err
	}
	if w.heavy, w.heavySender, err = w.open(ctx, connection, name+"-heavy", bus, 0, w.handleHeavy); err != nil {
		return nil, err
	}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() {
		defer close(w.ended)
		w.failure = millrace.Run(ctx, critical, w.heavy)
	}()
	for !critical.State().Ready() || !w.heavy.State().Ready() {
		if !waiting.For(time.Millisecond, w.ended) {
			return nil, errors.Join(errors.New("the listeners have ended"), w.stop())
		}
	}
	return w, nil
}

// open creates a queue and returns its listener and its sender.
func (w *worker) open(ctx context.Context, connection, name string, bus *wakeup.Bus, reserve int, h listener.Handler[job]) (*listener.Listener[job], *producer.Producer[job], error) {
	q, err := azurequeue.Open(connection, name, nil)
	if err != nil {
		return nil, nil, err
	}
	w.closing = append(w.closing, q)
	o := &listener.Options[job]{
		Slots: w.pool.Member(&pool.MemberOptions{Name: name, Reserve: reserve}), Wakeups: bus, Grace: time.Millisecond,
		Logger:  slog.New(slog.DiscardHandler),
		OnError: func(err error) { waiting.Signal(w.failed, err) },
	}
	return listener.New(q, h, o), producer.New(q, &producer.Options[job]{Wakeups: bus}), q.Create(ctx, nil)
}

func (w *worker) handleCritical(_ context.Context, m *listener.Message[job]) error {
	at := time.Now()
	n := m.Body.Number
	if n < 0 || n >= len(w.begun) {
		return listener.Poison(fmt.Errorf("there is no job %d: %d are sent", n, len(w.begun)))
	}
	if w.begun[n].CompareAndSwap(nil, &at) { // or it came twice
		w.count.Add(1)
		waiting.Signal(w.changed, struct{}{})
	}
	waiting.For(w.plan.critical, nil)
	return nil
}

// handleHeavy waits, without using the processor: half to one and a half times as long as the plan says, or jobs that
// began together would also end together.
func (w *worker) handleHeavy(ctx context.Context, m *listener.Message[job]) error {
	waiting.For(w.plan.heavy*time.Duration(50+m.Body.Number*37%101)/100, ctx.Done())
	return context.Cause(ctx)
}

// sending is what became of the jobs that were sent.
type sending struct {
	late     []time.Duration // after it was due, the call of Send
	returned []time.Time     // the return of Send
}

// send sends critical jobs, the first of which has this number, each on a goroutine of its own when it is due.
func (w *worker) send(ctx context.Context, first int, due []time.Duration) (sending, error) {
	done := sending{make([]time.Duration, len(due)), make([]time.Time, len(due))}
	errs := make([]error, len(due))
	begin := time.Now()
	var all sync.WaitGroup
	for i, after := range due {
		if wait := after - time.Since(begin); wait > 0 {
			waiting.For(wait, ctx.Done())
		}
		all.Go(func() {
			done.late[i] = time.Since(begin) - after
			_, errs[i] = w.criticalSender.Send(ctx, job{first + i}, nil)
			done.returned[i] = time.Now()
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}

// flood sends more heavy jobs than can be handled while critical ones are sent, and waits until they have
// taken all slots that they get, and end evenly. They last for twice the window, and for twenty seconds in which
// a busy machine may stop all this.
func (w *worker) flood(ctx context.Context) error {
	p := w.plan
	jobs := make([]job, p.slots*int(8+2*(p.window+10*time.Second)/p.heavy))
	for i := range jobs {
		jobs[i].Number = i
	}
	if _, err := w.heavySender.SendAll(ctx, slices.Values(jobs), nil); err != nil {
		return err
	}
	w.flooding = int64(len(jobs))
	limited, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for w.heavy.State().Running < w.unreserved()*9/10 {
		if !waiting.For(time.Millisecond, limited.Done()) {
			return fmt.Errorf("the flood does not take the slots: %+v", w.pool.State())
		}
	}
	waiting.For(2*p.heavy, ctx.Done())
	return ctx.Err()
}

// unreserved returns how many slots heavy jobs may have.
func (w *worker) unreserved() int {
	n := w.plan.slots
	for _, m := range w.pool.State().Members {
		n -= m.Reserve
	}
	return n
}

// flooded reports whether more heavy jobs wait than run.
func (w *worker) flooded() bool {
	return w.flooding-w.heavy.State().Succeeded > 2*int64(w.plan.slots)
}

// await waits until so many critical jobs have begun.
func (w *worker) await(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for w.count.Load() < int64(n) {
		select {
		case <-w.changed:
		case <-w.ended:
			return errors.New("the listeners have ended")
		case <-ctx.Done():
			return fmt.Errorf("%d of %d critical jobs were handled: %w", w.count.Load(), n, ctx.Err())
		}
	}
	return nil
}

// startOf returns when the handler of a critical job began, which has.
func (w *worker) startOf(n int) time.Time { return *w.begun[n].Load() }

// stop ends the listeners. Heavy jobs are given back.
func (w *worker) stop() error {
	w.cancel()
	<-w.ended
	select {
	case err := <-w.failed:
		w.failure = errors.Join(w.failure, err)
	default:
	}
	return errors.Join(w.failure, w.close())
}

// close closes the queues.
func (w *worker) close() error {
	var errs []error
	for _, c := range w.closing {
		errs = append(errs, c.Close())
	}
	w.closing = nil
	return errors.Join(errs...)
}
