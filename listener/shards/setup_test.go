package shards_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}

type job struct{ N int }

// bundle holds the parts of a test. It must be made in the bubble.
type bundle struct {
	*testing.T
	engine *localqueue.Engine
	begin  time.Time

	mu      sync.Mutex
	handled map[int]int        // how often each job was handled; guarded by mu
	from    map[int]queue.Name // the shard that it came from last; guarded by mu
	errs    []error            // what OnError received; guarded by mu
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&bundle{T: t, engine: must(localqueue.New(nil)), begin: time.Now(), handled: map[int]int{}, from: map[int]queue.Name{}})
	})
}

func name(i int) queue.Name { return queue.Name{Account: "test", Queue: fmt.Sprintf("jobs-%d", i)} }

// missing returns a queue that was not created.
func (b *bundle) missing(i int) queue.Queue { return b.engine.Queue(name(i)) }

// shard returns a queue, and creates it.
func (b *bundle) shard(i int) queue.Queue {
	b.Helper()
	q := b.missing(i)
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	return q
}

func (b *bundle) shards(n int) []queue.Queue {
	b.Helper()
	var all []queue.Queue
	for i := range n {
		all = append(all, b.shard(i))
	}
	return all
}

// put puts a job directly into a queue.
func (b *bundle) put(q queue.Queue, n int) {
	b.Helper()
	if _, err := q.Enqueue(b.Context(), fmt.Sprintf(`{"N":%d}`, n), nil); err != nil {
		b.Fatal(err)
	}
}

// depth returns the depth of a queue.
func (b *bundle) depth(q queue.Queue) int64 {
	b.Helper()
	p, err := q.Properties(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return p.Depth
}

// handle records the job.
func (b *bundle) handle(ctx context.Context, m *listener.Message[job]) error {
	d, ok := listener.DeliveryFrom(ctx)
	if !ok {
		return errors.New("the context has no delivery")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handled[m.Body.N]++
	b.from[m.Body.N] = d.Queue
	return nil
}

// jobs returns the numbers of the jobs that were handled.
func (b *bundle) jobs() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.handled))
}

// reported returns what OnError received.
func (b *bundle) reported() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.errs)
}

// options returns options without a log.
func (b *bundle) options() *shards.Options[job] {
	return &shards.Options[job]{Listener: &listener.Options[job]{
		Logger: slog.New(slog.DiscardHandler),
		OnError: func(err error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.errs = append(b.errs, err)
		},
	}}
}

// running is a listener that runs.
type running struct {
	*shards.Listener[job]
	b    *bundle
	stop func()
	done chan error
}

// run starts a listener; the test must call finish or mustFinish.
func (b *bundle) run(l *shards.Listener[job]) *running {
	ctx, stop := context.WithCancel(b.Context())
	r := &running{l, b, stop, make(chan error, 1)}
	go func() { r.done <- l.Run(ctx) }()
	return r
}

// finish stops the run and returns its error.
func (r *running) finish() error {
	r.stop()
	return <-r.done
}

func (r *running) mustFinish() {
	r.b.Helper()
	if err := r.finish(); err != nil {
		r.b.Errorf("Run: got error %v, want nil", err)
	}
}

// advance lets fake time pass and waits for its effects.
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
