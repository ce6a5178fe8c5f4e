package kinds_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}

type order struct{ Total int }

type email struct{ To string }

// The kinds of most tests.
var (
	orders   = kinds.Kind[order]{Name: "order"}
	emails   = kinds.Kind[email]{Name: "email"}
	unnamed  = kinds.Kind[order]{} // jobs without a kind
	errFails = errors.New("no")
)

// bundle holds the parts of a test of a whole listener. It must be made in the bubble.
type bundle struct {
	*testing.T
	queue   queue.Manager
	options *listener.Options[any] // without a log
	begin   time.Time

	mu       sync.Mutex
	handled  map[string][]delivered // by kind; guarded by mu
	reported []error                // guarded by mu
}

// delivered is what a handler saw.
type delivered struct {
	body     any
	attempt  int
	max      int
	dequeues int64
}

func setup(t *testing.T) *bundle {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b := &bundle{T: t, queue: q, begin: time.Now(), handled: map[string][]delivered{}}
	b.options = &listener.Options[any]{Logger: slog.New(slog.DiscardHandler), OnError: func(err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reported = append(b.reported, err)
	}}
	return b
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t)) })
}

// handler records what it sees and returns the error.
func handler[T any](b *bundle, result error) listener.Handler[T] {
	return func(_ context.Context, m *listener.Message[T]) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.handled[m.Kind] = append(b.handled[m.Kind], delivered{
			m.Body, m.Attempt, m.MaxAttempts, m.DequeueCount,
		})
		return result
	}
}

// send sends jobs of a kind.
func send[T any](b *bundle, k kinds.Kind[T], jobs ...T) {
	b.Helper()
	for _, job := range jobs {
		if _, err := k.Producer(b.queue, nil).Send(b.Context(), job, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// sendBody sends a body as a job of the kind.
func (b *bundle) sendBody(kind, body string) {
	b.Helper()
	if _, err := producer.New(b.queue, &producer.Options[string]{Kind: kind, Codec: codec.Text()}).Send(b.Context(), body, nil); err != nil {
		b.Fatal(err)
	}
}

// runner is a listener of any type.
type runner interface {
	Run(ctx context.Context) error
	State() listener.State
}

// kindsOf returns a listener for the kinds with the options of the bundle.
func (b *bundle) kindsOf(ks ...listener.Kind) *listener.Listener[any] {
	return must(listener.NewKinds(b.queue, ks, b.options))
}

// run runs listeners side by side for so long and returns the final state of the first.
func (b *bundle) run(d time.Duration, ls ...runner) listener.State {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for _, l := range ls {
		wg.Go(func() {
			if err := l.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return ls[0].State()
}

// records returns what is in the poison queue.
func (b *bundle) records() []poison.Record {
	b.Helper()
	batch, err := b.queue.Sibling(poison.Suffix).Peek(b.Context(), queue.MaxBatch)
	if errors.Is(err, queue.ErrQueueMissing) {
		return nil
	}
	if err != nil {
		b.Fatal(err)
	}
	var records []poison.Record
	for _, m := range batch {
		r, err := poison.ParseRecord(m.Text)
		if err != nil {
			b.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// depth returns how many messages are in the queue.
func (b *bundle) depth() int64 {
	b.Helper()
	p, err := b.queue.Properties(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return p.Depth
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
