package listener

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	if location := os.Getenv(workerVariable); location != "" {
		os.Exit(work(location))
	}
	suitetest.OneProcessor()
	debug.SetGCPercent(400) // worlds are small and many
	goleak.VerifyTestMain(m)
}

type job struct{ N int }

// bundle holds the parts of a test of a whole listener. It must be made in the bubble.
type bundle struct {
	*testing.T
	engine *localqueue.Engine
	queue  *recordingQueue
	begin  time.Time

	stop func()     // ends the context of run
	done chan error // what Run returned
}

func setup(t *testing.T) *bundle {
	t.Helper()
	engine := must(localqueue.New(nil))
	inner := engine.Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := inner.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return &bundle{T: t, engine: engine, queue: &recordingQueue{Queue: inner, requestLog: &requestLog{}}, begin: time.Now()}
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

// mustFinish stops the run and fails the test if it returned an error.
func (b *bundle) mustFinish() {
	b.Helper()
	if err := b.finish(); err != nil {
		b.Errorf("Run: got error %v, want nil", err)
	}
}

// advance lets fake time pass and waits for its effects.
func advance(d time.Duration) {
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

// options returns the default options without a log.
func options() *Options[job] {
	return &Options[job]{Logger: slog.New(slog.DiscardHandler)}
}

// request is one request of a listener.
type request struct {
	op  string
	at  time.Time
	n   int // messages requested by a dequeue
	got int // messages received by a dequeue
	err error
}

// recordingQueue is a queue that records requests and can intercept them.
type recordingQueue struct {
	queue.Queue
	*requestLog
}

// requestLog is the record that a queue shares with its siblings.
type requestLog struct {
	mu        sync.Mutex
	log       []request                               // guarded by mu
	intercept func(op string, act func() error) error // called instead of act; nil for none; set before the run
	latency   time.Duration                           // of every request; set before the run
}

func (c *requestLog) do(op string, n int, act func() (int, error)) error {
	at := time.Now()
	if c.latency > 0 {
		time.Sleep(c.latency)
	}
	got := 0
	run := func() (err error) { got, err = act(); return err }
	var err error
	if c.intercept != nil {
		err = c.intercept(op, run)
	} else {
		err = run()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log = append(c.log, request{op, at, n, got, err})
	return err
}

// sent returns the requests of one operation.
func (c *requestLog) sent(op string) []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []request
	for _, r := range c.log {
		if r.op == op {
			found = append(found, r)
		}
	}
	return found
}

func (w *recordingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	err = w.do("enqueue", 1, func() (int, error) { m, err = w.Queue.Enqueue(ctx, text, o); return 0, err })
	return m, err
}

func (w *recordingQueue) Dequeue(ctx context.Context, n int, v time.Duration) (batch []queue.Message, err error) {
	err = w.do("dequeue", n, func() (int, error) { batch, err = w.Queue.Dequeue(ctx, n, v); return len(batch), err })
	if err != nil {
		batch = nil
	}
	return batch, err
}

func (w *recordingQueue) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (fresh queue.Lease, err error) {
	err = w.do("update", 1, func() (int, error) { fresh, err = w.Queue.Update(ctx, l, text, v); return 0, err })
	return fresh, err
}

func (w *recordingQueue) Delete(ctx context.Context, l queue.Lease) error {
	return w.do("delete", 1, func() (int, error) { return 0, w.Queue.Delete(ctx, l) })
}

func (w *recordingQueue) Properties(ctx context.Context) (p queue.Properties, err error) {
	err = w.do("properties", 1, func() (int, error) { p, err = w.Queue.Properties(ctx); return 0, err })
	return p, err
}

func (w *recordingQueue) Create(ctx context.Context, metadata map[string]string) error {
	return w.do("create", 1, func() (int, error) { return 0, w.Queue.Create(ctx, metadata) })
}

func (w *recordingQueue) Sibling(suffix string) queue.Queue {
	return &recordingQueue{Queue: w.Queue.Sibling(suffix), requestLog: w.requestLog}
}

func textLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, nil))
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
