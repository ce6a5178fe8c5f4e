package sharded_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a sharded queue whose shards can be disturbed.
type bundle struct {
	*sharded.Queue
	shards []*disturbed
}

// setup makes k shards, in two accounts, that exist.
func setup(t testing.TB, k int, o *sharded.Options) *bundle {
	t.Helper()
	if o == nil {
		o = &sharded.Options{}
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	b := &bundle{}
	engine := must(localqueue.New(nil))
	queues := make([]queue.Queue, k)
	for i := range queues {
		s := newShard(t, engine, i)
		b.shards = append(b.shards, s)
		queues[i] = s
	}
	var err error
	if b.Queue, err = sharded.New(queues, o); err != nil {
		t.Fatal(err)
	}
	return b
}

// newShard returns the shard with a number, which exists.
func newShard(t testing.TB, engine *localqueue.Engine, i int) *disturbed {
	t.Helper()
	s := &disturbed{Queue: engine.Queue(queue.Name{Account: []string{"east", "west"}[i%2], Queue: fmt.Sprintf("orders-%d", i)})}
	if err := s.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// send enqueues a text and returns the index of its shard.
func (b *bundle) send(t testing.TB, text, key string) int {
	t.Helper()
	m, err := b.Enqueue(t.Context(), text, &queue.EnqueueOptions{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return b.index(t, m.Queue)
}

func (b *bundle) index(t testing.TB, name queue.Name) int {
	t.Helper()
	for i, s := range b.shards {
		if s.Name() == name {
			return i
		}
	}
	t.Fatalf("%v is no shard", name)
	return -1
}

// counts returns how many messages are in the shards.
func (b *bundle) counts(t testing.TB) []int64 {
	t.Helper()
	counts := make([]int64, len(b.shards))
	for i, s := range b.shards {
		p, err := s.Queue.Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		counts[i] = p.Depth
	}
	return counts
}

// disturbed is a queue whose requests may fail.
type disturbed struct {
	queue.Queue
	sends    atomic.Int64 // calls of Enqueue
	readings atomic.Int64 // calls of Properties

	mu         sync.Mutex
	enqueue    func(ctx context.Context, send func() (queue.Message, error)) (queue.Message, error) // nil is undisturbed; guarded by mu
	properties func(ctx context.Context) (queue.Properties, error)                                  // nil is undisturbed; guarded by mu
}

func (d *disturbed) disturb(enqueue func(ctx context.Context, send func() (queue.Message, error)) (queue.Message, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueue = enqueue
}

// fail lets every Enqueue fail without effect; nil ends that.
func (d *disturbed) fail(kind error) {
	if kind == nil {
		d.disturb(nil)
		return
	}
	d.disturb(func(context.Context, func() (queue.Message, error)) (queue.Message, error) {
		return queue.Message{}, &queue.Error{Op: "enqueue", Queue: d.Name(), Kind: kind, Status: 503}
	})
}

// lose lets every Enqueue take effect, and loses the response.
func (d *disturbed) lose() {
	d.disturb(func(_ context.Context, send func() (queue.Message, error)) (queue.Message, error) {
		if _, err := send(); err != nil {
			return queue.Message{}, err
		}
		return queue.Message{}, &queue.Error{Op: "enqueue", Queue: d.Name(), Kind: queue.ErrOutcomeUnknown}
	})
}

func (d *disturbed) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	d.sends.Add(1)
	d.mu.Lock()
	enqueue := d.enqueue
	d.mu.Unlock()
	if enqueue == nil {
		return d.Queue.Enqueue(ctx, text, o)
	}
	return enqueue(ctx, func() (queue.Message, error) { return d.Queue.Enqueue(ctx, text, o) })
}

func (d *disturbed) Properties(ctx context.Context) (queue.Properties, error) {
	d.readings.Add(1)
	d.mu.Lock()
	properties := d.properties
	d.mu.Unlock()
	if properties == nil {
		return d.Queue.Properties(ctx)
	}
	return properties(ctx)
}

// named is a queue that has nothing but a name, for tests of where messages go.
type named struct {
	queue.Queue
	name queue.Name
}

func (n named) Name() queue.Name { return n.name }

// idle is such a queue that takes messages and has none.
type idle struct{ named }

func (idle) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	return queue.Message{}, nil
}

func (idle) Properties(context.Context) (queue.Properties, error) { return queue.Properties{}, nil }

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
