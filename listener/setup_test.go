package listener

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	if location := os.Getenv(workerVariable); location != "" {
		os.Exit(work(location))
	}
	goleak.VerifyTestMain(m)
}

type job struct{ N int }

// bundle holds what a test of a whole listener needs. It must be made in the bubble.
type bundle struct {
	*testing.T
	queue *wire
	begin time.Time

	stop func()     // ends the context of run
	done chan error // what Run returned
}

func setup(t *testing.T) *bundle {
	t.Helper()
	inner := localqueue.New(nil).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := inner.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &bundle{T: t, queue: &wire{Queue: inner, calls: &calls{}}, begin: time.Now()}
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t)) })
}

// put enqueues jobs numbered from 0.
func (b *bundle) put(n int) {
	b.Helper()
	for i := range n {
		text, _ := json.Marshal(job{i})
		b.putText(string(text))
	}
}

func (b *bundle) putText(text string) queue.Message {
	b.Helper()
	m, err := b.queue.Queue.Enqueue(b.Context(), text, nil)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// run starts the listener; the test must call finish.
func (b *bundle) run(l interface{ Run(context.Context) error }) {
	ctx, stop := context.WithCancel(b.Context())
	b.stop, b.done = stop, make(chan error, 1)
	go func() { b.done <- l.Run(ctx) }()
}

// finish stops the run and returns its error.
func (b *bundle) finish() error {
	b.stop()
	return <-b.done
}

// finished is finish for runs without an error.
func (b *bundle) finished() {
	b.Helper()
	if err := b.finish(); err != nil {
		b.Errorf("Run: %v", err)
	}
}

// after lets fake time pass and waits for its effects.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// depth returns the number of messages in the queue, invisible ones included.
func (b *bundle) depth(q queue.Queue) int64 {
	b.Helper()
	p, err := q.Properties(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return p.Depth
}

// poisoned returns what is in the poison queue.
func (b *bundle) poisoned() []queue.Message {
	b.Helper()
	batch, err := b.queue.Queue.Sibling("-poison").Peek(b.Context(), queue.MaxBatch)
	if err != nil {
		b.Fatal(err)
	}
	return batch
}

// options returns options that log nothing.
func options() *Options[job] {
	return &Options[job]{Logger: slog.New(slog.DiscardHandler)}
}

// call is one request of a listener.
type call struct {
	op  string
	at  time.Time
	n   int // asked for, by a dequeue
	got int // received, by a dequeue
	err error
}

// wire is a queue that records requests and can replace their answers.
type wire struct {
	queue.Queue
	*calls
}

// calls is what is shared with siblings.
type calls struct {
	mu      sync.Mutex
	log     []call                                  // guarded by mu
	tamper  func(op string, act func() error) error // in place of acting; nil for none; set before the run
	latency time.Duration                           // of every request; set before the run
}

func (c *calls) do(op string, n int, act func() (int, error)) error {
	at := time.Now()
	if c.latency > 0 {
		time.Sleep(c.latency)
	}
	got := 0
	run := func() (err error) { got, err = act(); return err }
	var err error
	if c.tamper != nil {
		err = c.tamper(op, run)
	} else {
		err = run()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, call{op, at, n, got, err})
	return err
}

// sent returns the calls of one operation.
func (c *calls) sent(op string) []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []call
	for _, one := range c.log {
		if one.op == op {
			found = append(found, one)
		}
	}
	return found
}

func (w *wire) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	err = w.do("enqueue", 1, func() (int, error) { m, err = w.Queue.Enqueue(ctx, text, o); return 0, err })
	return m, err
}

func (w *wire) Dequeue(ctx context.Context, n int, v time.Duration) (batch []queue.Message, err error) {
	err = w.do("dequeue", n, func() (int, error) { batch, err = w.Queue.Dequeue(ctx, n, v); return len(batch), err })
	if err != nil {
		batch = nil
	}
	return batch, err
}

func (w *wire) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (fresh queue.Lease, err error) {
	err = w.do("update", 1, func() (int, error) { fresh, err = w.Queue.Update(ctx, l, text, v); return 0, err })
	return fresh, err
}

func (w *wire) Delete(ctx context.Context, l queue.Lease) error {
	return w.do("delete", 1, func() (int, error) { return 0, w.Queue.Delete(ctx, l) })
}

func (w *wire) Properties(ctx context.Context) (p queue.Properties, err error) {
	err = w.do("properties", 1, func() (int, error) { p, err = w.Queue.Properties(ctx); return 0, err })
	return p, err
}

func (w *wire) Create(ctx context.Context, metadata map[string]string) error {
	return w.do("create", 1, func() (int, error) { return 0, w.Queue.Create(ctx, metadata) })
}

func (w *wire) Sibling(suffix string) queue.Queue {
	return &wire{Queue: w.Queue.Sibling(suffix), calls: w.calls}
}

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}
