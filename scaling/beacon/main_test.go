package beacon

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// jobs is the queue from which the instances of tests take jobs.
var jobs = queue.Name{Account: "acme", Queue: "jobs"}

// world is a control queue with instances that report to it. It must be made in a bubble.
type world struct {
	*testing.T
	account *localqueue.Engine
	control queue.Queue
	meter   *metered.Meter // counts what instances send
	viewer  *Viewer
	started int // instances

	mu     sync.Mutex
	errors []error // guarded by mu
}

// bubble runs a test with its world on a fake clock.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := must(localqueue.New(&localqueue.Options{Seed: 1}))
		control := a.Queue(queue.Name{Account: "acme", Queue: "control"})
		if err := control.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f(&world{T: t, account: a, control: control, meter: new(metered.Meter), viewer: must(NewViewer(control))})
	})
}

// advance lets fake time pass and waits for its effects.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// instance is a publisher whose report the test changes.
type instance struct {
	*Publisher
	stop func() // ends Run and waits for it
	kill func() // ends Run without a last report, as if the process died

	mu  sync.Mutex
	now Report // guarded by mu
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

// start starts an instance that reports through q.
func (w *world) start(q queue.Queue, o Options) *instance {
	w.Helper()
	o.Queue = w.meter.Wrap(q)
	i := &instance{now: Report{Queue: jobs, Phase: running}}
	i.now.Load.Slots = 10
	dead := new(atomic.Bool)
	o.Queue = &mortal{o.Queue, dead}
	i.Publisher = must(NewPublisher(jobs, func() Report { i.mu.Lock(); defer i.mu.Unlock(); return i.now }, w.failed, &o))
	w.started++
	i.run = fmt.Sprintf("run %d", w.started) // or faults and waits would differ from test to test
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = i.Run(ctx) }()
	i.stop = func() { stop(); <-done }
	i.kill = func() { dead.Store(true); i.stop() }
	synctest.Wait()
	return i
}

func (w *world) failed(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.errors = append(w.errors, err)
}

// takeErrors returns the errors since the last call.
func (w *world) takeErrors() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.errors
	w.errors = nil
	return all
}

// set changes what the instance reports.
func (i *instance) set(f func(r *Report)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f(&i.now)
}

// view returns what the viewer sees.
func (w *world) view() View {
	w.Helper()
	view, err := w.viewer.View(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return view
}

// messages returns the messages in the control queue.
func (w *world) messages() []queue.Message {
	w.Helper()
	all, err := w.control.Peek(w.Context(), queue.MaxBatch)
	if err != nil {
		w.Fatal(err)
	}
	return all
}

// put puts a report into the control queue as an instance would.
func (w *world) put(r Report, ttl time.Duration) {
	w.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := w.control.Enqueue(w.Context(), string(text), &queue.EnqueueOptions{TTL: ttl}); err != nil {
		w.Fatal(err)
	}
}

// mortal is a queue that sends nothing more when its process is dead.
type mortal struct {
	queue.Queue
	dead *atomic.Bool // of the process
}

func (m *mortal) Sibling(suffix string) queue.Queue {
	return &mortal{m.Queue.Sibling(suffix), m.dead}
}

func (m *mortal) alive() error {
	if m.dead.Load() {
		return &queue.Error{Op: "any", Queue: m.Name(), Kind: queue.ErrUnavailable}
	}
	return nil
}

func (m *mortal) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if err := m.alive(); err != nil {
		return queue.Message{}, err
	}
	return m.Queue.Enqueue(ctx, text, o)
}

func (m *mortal) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	if err := m.alive(); err != nil {
		return queue.Lease{}, err
	}
	return m.Queue.Update(ctx, l, text, v)
}

func (m *mortal) Delete(ctx context.Context, l queue.Lease) error {
	if err := m.alive(); err != nil {
		return err
	}
	return m.Queue.Delete(ctx, l)
}
