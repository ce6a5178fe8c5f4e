package slots_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// bundle holds the parts of a test of a shared. It must be made in the bubble.
type bundle struct {
	*testing.T
	account *localqueue.Engine
	shared  *slots.Shared
	begin   time.Time
	most    atomic.Int64 // handlers that ran at once
	running atomic.Int64
}

// bubble runs a test with a pool on a fake clock.
func bubble(t *testing.T, o *slots.SharedOptions, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&bundle{T: t, account: must(localqueue.New(nil)), shared: must(slots.NewShared(o)), begin: time.Now()})
	})
}

// worker is a listener that is a member of the shared.
type worker struct {
	*bundle
	name    string
	queue   *slowQueue
	member  *slots.Member
	options listener.Options[string]
	takes   time.Duration // of every handler
	spread  bool          // handlers take half to one and a half of that
	release chan struct{} // ends a handler earlier; nil for none
	deaf    bool          // handlers ignore their contexts
	result  error         // of every handler
	broken  atomic.Bool   // every handler fails
	refill  bool          // every handler enqueues another message
	handled atomic.Int64
	spent   atomic.Int64 // by handlers that have ended well; a time.Duration
	started atomic.Int64
	running atomic.Int64
	run     *listener.Listener[string]
	stop    context.CancelFunc
	done    chan error
}

// slowQueue is a queue whose dequeues take a while.
type slowQueue struct {
	queue.Queue
	latency  atomic.Int64 // of a dequeue; a time.Duration
	dequeues atomic.Int64
	asked    atomic.Int64          // messages, by the last dequeue
	readings atomic.Int64          // of the properties
	err      atomic.Pointer[error] // of every dequeue; nil for none
}

func (q *slowQueue) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	q.dequeues.Add(1)
	q.asked.Store(int64(n))
	time.Sleep(time.Duration(q.latency.Load()))
	if err := q.err.Load(); err != nil {
		return nil, *err
	}
	return q.Queue.Dequeue(ctx, n, v)
}

func (q *slowQueue) Properties(ctx context.Context) (queue.Properties, error) {
	q.readings.Add(1)
	return q.Queue.Properties(ctx)
}

// fail makes every dequeue fail, or none if err is nil.
func (q *slowQueue) fail(err error) {
	if err == nil {
		q.err.Store(nil)
	} else {
		q.err.Store(&err)
	}
}

// worker returns a worker with a queue of its own and the member, whose handlers take that long.
func (b *bundle) worker(name string, m *slots.MemberOptions, takes time.Duration) *worker {
	b.Helper()
	q := b.account.Queue(queue.Name{Account: "test", Queue: name})
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	if m == nil {
		m = &slots.MemberOptions{}
	}
	m.Name = name
	w := &worker{bundle: b, name: name, queue: &slowQueue{Queue: q}, member: b.shared.Member(m), takes: takes}
	w.queue.latency.Store(int64(10 * time.Millisecond))
	w.options = listener.Options[string]{Slots: w.member, Logger: slog.New(slog.DiscardHandler), Seed: uint64(len(name)) + 7}
	return w
}

// put enqueues messages.
func (w *worker) put(n int) *worker {
	w.Helper()
	for i := range n {
		if _, err := w.queue.Enqueue(w.Context(), fmt.Sprintf("%q", fmt.Sprint(i)), nil); err != nil {
			w.Fatal(err)
		}
	}
	return w
}

// start runs the listener; the test must call end.
func (w *worker) start() *worker {
	w.run = listener.New(w.queue, w.handle, &w.options)
	ctx, stop := context.WithCancel(w.Context())
	w.stop, w.done = stop, make(chan error, 1)
	go func() { w.done <- w.run.Run(ctx) }()
	return w
}

func (w *worker) handle(ctx context.Context, _ *listener.Message[string]) error {
	n := w.bundle.running.Add(1)
	for most := w.most.Load(); n > most && !w.most.CompareAndSwap(most, n); most = w.most.Load() {
	}
	w.running.Add(1)
	defer w.running.Add(-1)
	defer w.bundle.running.Add(-1)
	ended := ctx.Done()
	if w.deaf {
		ended = nil
	}
	takes := w.takes
	if w.spread {
		takes = takes/2 + takes*time.Duration(w.started.Add(37)%100)/100
	}
	timer := time.NewTimer(max(takes, 1)) // not one that has run out: golang/go#78156, see CONTRIBUTING.md
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.release:
	case <-ended:
		return context.Cause(ctx)
	}
	if w.broken.Load() {
		return errors.New("it does not work")
	}
	w.handled.Add(1)
	w.spent.Add(int64(takes))
	if w.refill {
		w.put(1)
	}
	return w.result
}

// end stops the listener and waits for it.
func (w *worker) end() {
	w.Helper()
	w.stop()
	if err := <-w.done; err != nil {
		w.Errorf("%s: got error %v, want nil", w.name, err)
	}
}

// halt ends the listener at once.
func (w *worker) halt() {
	w.Helper()
	w.run.Halt()
	w.end()
}

// wantError fails the test if the error lacks one of the parts.
func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("got no error, want one with %q", parts)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got error %q, want one with %q", err, part)
		}
	}
}

// held returns what the member of that name holds.
func (b *bundle) held(name string) int {
	for _, m := range b.shared.State().Members {
		if m.Name == name {
			return m.Held
		}
	}
	return 0
}

// averages samples how many slots the workers hold, and returns the averages.
func averages(over time.Duration, workers ...*worker) []float64 {
	const interval = 7 * time.Millisecond
	sums := make([]float64, len(workers))
	samples := int(over / interval)
	for range samples {
		time.Sleep(interval)
		for i, w := range workers {
			sums[i] += float64(w.held(w.name))
		}
	}
	for i := range sums {
		sums[i] /= float64(samples)
	}
	return sums
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
