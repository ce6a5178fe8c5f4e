package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// instant is a time in nanoseconds, of the clock that all processes share; see now.
type instant int64

// job is what is sent. Jobs are numbered from 0.
type job struct{ Number int }

// schedule returns when jobs are due after the start of a window: at random instants, so many a second on
// average, at least one. It depends only on its arguments.
func schedule(perSecond float64, window time.Duration, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	var due []time.Duration
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		next := time.Duration(at * float64(time.Second))
		if next >= window && len(due) > 0 {
			return due
		}
		due = append(due, min(next, window))
	}
}

// sending is what became of jobs that were sent.
type sending struct {
	late     []time.Duration // after it was due, the call of Send
	returned []instant       // the return of Send
}

// send sends jobs, the first of which has this number, each on a goroutine of its own when it is due. So a job that
// waits delays no later one, and waiting is not hidden by sending less (coordinated omission).
func send(ctx context.Context, p *producer.Producer[job], first int, due []time.Duration) (sending, error) {
	done := sending{make([]time.Duration, len(due)), make([]instant, len(due))}
	errs := make([]error, len(due))
	begin := now()
	var all sync.WaitGroup
	for i, after := range due {
		if wait := after - time.Duration(now()-begin); wait > 0 {
			waiting.For(wait, ctx.Done())
		}
		all.Go(func() {
			done.late[i] = time.Duration(now()-begin) - after
			_, errs[i] = p.Send(ctx, job{first + i}, nil)
			done.returned[i] = now()
		})
	}
	all.Wait()
	return done, errors.Join(errs...)
}

// starts notes when the handlers of jobs begin.
type starts struct {
	begun   []atomic.Int64 // the first time, by number; 0 for none
	count   atomic.Int64   // of jobs that have begun
	changed chan struct{}  // signals count
}

func newStarts(jobs int) *starts {
	return &starts{begun: make([]atomic.Int64, jobs), changed: make(chan struct{}, 1)}
}

// note is the first line of a handler.
func (s *starts) note(m *listener.Message[job]) error {
	at, n := now(), m.Body.Number
	if n < 0 || n >= len(s.begun) {
		return listener.Poison(fmt.Errorf("there is no job %d: %d are sent", n, len(s.begun)))
	}
	if s.begun[n].CompareAndSwap(0, int64(at)) { // otherwise it came twice
		s.count.Add(1)
		waiting.Signal(s.changed, struct{}{})
	}
	return nil
}

// drain is how long the last jobs may take.
const drain = 30 * time.Second

// await waits until so many jobs have begun, and returns when each did.
func (s *starts) await(ctx context.Context, n int, ended <-chan struct{}) ([]instant, error) {
	ctx, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	for s.count.Load() < int64(n) {
		select {
		case <-s.changed:
		case <-ended:
			return nil, errors.New("the listener has ended")
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d jobs were handled: %w", s.count.Load(), n, ctx.Err())
		}
	}
	all := make([]instant, len(s.begun))
	for i := range all {
		all[i] = instant(s.begun[i].Load())
	}
	return all, nil
}

// waited is how long jobs took, in all rounds.
type waited struct {
	waits []time.Duration // from the return of Send to the first line of the handler
	late  []time.Duration // from when it was due to the call of Send
}

// add sends jobs and waits until they have begun. Before that it sends others, which open the connections, and calls
// prepare. The starts are those of all.
func (w *waited) add(ctx context.Context, p *producer.Producer[job], warmUp int, due []time.Duration, starts func(context.Context, int) ([]instant, error), prepare func() error) error {
	if _, err := send(ctx, p, 0, make([]time.Duration, warmUp)); err != nil {
		return err
	}
	if _, err := starts(ctx, warmUp); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	sent, err := send(ctx, p, warmUp, due)
	if err != nil {
		return err
	}
	begun, err := starts(ctx, warmUp+len(due))
	if err != nil {
		return err
	}
	for i, returned := range sent.returned {
		w.waits = append(w.waits, time.Duration(begun[warmUp+i]-returned))
	}
	w.late = append(w.late, sent.late...)
	slices.Sort(w.waits)
	slices.Sort(w.late)
	return nil
}

// listening is a group of listeners that run.
type listening struct {
	cancel  context.CancelFunc
	ended   chan struct{} // closed when they have ended
	failed  chan error    // the first error of one
	failure error         // of Run; written before ended is closed
	closing closers
}

// start runs listeners and waits until they are ready.
func (l *listening) start(ctx context.Context, run func(context.Context) error, ready func() bool) error {
	ctx, l.cancel = context.WithCancel(ctx)
	l.ended = make(chan struct{})
	go func() {
		defer close(l.ended)
		l.failure = run(ctx)
	}()
	for !ready() {
		if !waiting.For(time.Millisecond, l.ended) {
			return errors.Join(errors.New("the listeners have ended"), l.failure)
		}
	}
	return nil
}

// fail notes the first error.
func (l *listening) fail(err error) { waiting.Signal(l.failed, err) }

// stop ends the listeners, if they were started, and closes what they use.
func (l *listening) stop() error {
	if l.cancel != nil {
		l.cancel()
		<-l.ended
	}
	select {
	case err := <-l.failed:
		l.failure = errors.Join(l.failure, err)
	default:
	}
	return errors.Join(l.failure, l.closing.close())
}
