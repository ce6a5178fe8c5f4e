package dedupe_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	if location := os.Getenv(workerVariable); location != "" {
		os.Exit(work(location, os.Getenv(directoryVariable)))
	}
	goleak.VerifyTestMain(m)
}

const container = "handled"

// job is what the tests send.
type job struct{ Name string }

// account is the account of the tests' queues.
const account = "test"

// bundle holds a queue and a store. It must be made in the bubble.
type bundle struct {
	*testing.T
	engine *localqueue.Engine
	queue  queue.Queue
	store  *store
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{T: t, engine: must(localqueue.New(&localqueue.Options{Seed: 1})), store: &store{Store: blob.Memory()}}
	b.queue = b.newQueue("jobs")
	return b
}

func (b *bundle) newQueue(name string) queue.Queue {
	b.Helper()
	q := b.engine.Queue(queue.Name{Account: account, Queue: name})
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	return q
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t)) })
}

// anyClock runs a test in bubbles in which the clock of this machine agrees with the store's, is
// ahead of it, or is behind it.
func anyClock(t *testing.T, f func(*bundle)) {
	t.Helper()
	for _, ahead := range []time.Duration{0, -time.Hour, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.store.ahead = ahead
				f(b)
			})
		})
	}
}

// eachGuard runs a test in a bubble of its own with a guard in memory and with a shared one.
func eachGuard(t *testing.T, f func(*bundle, *dedupe.Guard)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { bubble(t, func(b *bundle) { f(b, b.memory(nil)) }) })
	t.Run("shared", func(t *testing.T) { bubble(t, func(b *bundle) { f(b, b.shared(nil)) }) })
}

func (b *bundle) memory(o *dedupe.Options) *dedupe.Guard {
	b.Helper()
	g, err := dedupe.New(o)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func (b *bundle) shared(o *dedupe.Options) *dedupe.Guard {
	b.Helper()
	g, err := dedupe.NewShared(b.store, container, o)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// send sends a job with these options.
func (b *bundle) send(name string, o producer.SendOptions) producer.Sent {
	b.Helper()
	sent, err := producer.New[job](b.queue, nil).Send(b.Context(), job{name}, &o)
	if err != nil {
		b.Fatal(err)
	}
	return sent
}

// options returns the options of a listener on a short, fixed visibility that handles one job at a
// time, with the errors that it reports.
func options(d listener.Duplicates) (*listener.Options[job], *errorsSeen) {
	seen := &errorsSeen{}
	return &listener.Options[job]{
		Duplicates: d, Logger: slog.New(slog.DiscardHandler), OnError: seen.add,
		Lease:       listener.LeaseOptions{Visibility: listener.FixedVisibility(10 * time.Second)},
		Concurrency: 1, Fetch: listener.FetchOptions{Idle: listener.Idle{Max: 10 * time.Second}},
		RetryDelay: func(int, error) time.Duration { return time.Second },
		Poison:     listener.PoisonPolicy{MaxAttempts: 2},
	}, seen
}

// errorsSeen are the errors that a listener reported.
type errorsSeen struct {
	mu  sync.Mutex
	all []error // guarded by mu
}

func (s *errorsSeen) add(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, err)
}

// of returns the errors of the guard.
func (s *errorsSeen) of() (found []*listener.DuplicatesError) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.all {
		if one := (*listener.DuplicatesError)(nil); errors.As(err, &one) {
			found = append(found, one)
		}
	}
	return found
}

// runs are the jobs whose handlers were called.
type runs struct {
	mu    sync.Mutex
	names []string // guarded by mu
}

// handle is a handler that succeeds.
func (r *runs) handle(_ context.Context, m *listener.Message[job]) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, m.Body.Name)
	return nil
}

// returning is a handler that returns an error.
func (r *runs) returning(err error) listener.Handler[job] {
	return func(ctx context.Context, m *listener.Message[job]) error {
		return errors.Join(r.handle(ctx, m), err)
	}
}

// want checks which handlers were called, in any order.
func (r *runs) want(b *bundle, names ...string) {
	b.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := slices.Sorted(slices.Values(r.names))
	if !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		b.Errorf("handled: got %q, want %q", got, names)
	}
}

// run runs a listener on the bundle's queue for this long, and returns its last state.
func (b *bundle) run(o *listener.Options[job], h listener.Handler[job], d time.Duration) listener.State {
	b.Helper()
	l := listener.New(b.queue, h, o)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	time.Sleep(d)
	stop()
	if err := <-done; err != nil {
		b.Errorf("Run: got error %v, want nil", err)
	}
	return l.State()
}

// wantDepth checks how many messages the queue has, hidden ones included.
func (b *bundle) wantDepth(want int64) {
	b.Helper()
	p, err := b.queue.Properties(b.Context())
	if err != nil || p.Depth != want {
		b.Errorf("messages left: got %d, %v; want %d", p.Depth, err, want)
	}
}

// headOf returns the head of the message that is visible.
func (b *bundle) headOf() envelope.Head {
	b.Helper()
	batch, err := b.queue.Peek(b.Context(), 1)
	if err != nil || len(batch) != 1 {
		b.Fatalf("got %d visible messages, %v; want 1", len(batch), err)
	}
	head, _, _, err := envelope.Open(batch[0].Text, codec.Envelope)
	if err != nil {
		b.Fatal(err)
	}
	return head
}

// store is a store that can fail, and counts what it was asked.
type store struct {
	blob.Store
	before   func(ctx context.Context, op string) error // called before each operation; nil for nothing; set before use
	ahead    time.Duration                              // of this machine's clock; set before use
	timeless bool                                       // it does not say its time; set before use

	mu    sync.Mutex
	calls map[string]int // guarded by mu
}

func (s *store) act(ctx context.Context, op string) error {
	s.mu.Lock()
	if s.calls == nil {
		s.calls = make(map[string]int)
	}
	s.calls[op]++
	s.mu.Unlock()
	if s.before != nil {
		return s.before(ctx, op)
	}
	return nil
}

// count returns how many operations there were.
func (s *store) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *store) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	if err := s.act(ctx, "stat"); err != nil {
		return blob.Info{}, err
	}
	info, err := s.Store.Stat(ctx, ref)
	return s.byItsClock(info), err
}

func (s *store) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for info, err := range s.Store.List(ctx, container, prefix) {
			if !yield(s.byItsClock(info), err) {
				return
			}
		}
	}
}

// byItsClock returns the times of the store's clock.
func (s *store) byItsClock(info blob.Info) blob.Info {
	info.Modified, info.Now = info.Modified.Add(s.ahead), info.Now.Add(s.ahead)
	if s.timeless {
		info.Now = time.Time{}
	}
	return info
}

func (s *store) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.act(ctx, "create"); err != nil {
		return err
	}
	return s.Store.Create(ctx, ref, r, o)
}

func (s *store) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.act(ctx, "put"); err != nil {
		return err
	}
	return s.Store.Put(ctx, ref, r, o)
}

func (s *store) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.act(ctx, "delete"); err != nil {
		return err
	}
	return s.Store.Delete(ctx, ref)
}

// keys returns the keys that are recorded in the store.
func (b *bundle) keys() (keys []string) {
	b.Helper()
	for info, err := range b.store.List(b.Context(), container, "") {
		if err != nil {
			b.Fatal(err)
		}
		r, err := b.store.Open(b.Context(), info.Ref)
		if err != nil {
			b.Fatal(err)
		}
		key, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil {
			b.Fatal(err)
		}
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	return keys
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
