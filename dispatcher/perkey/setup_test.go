package perkey_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(m)
}

// job takes as long as it says.
type job struct {
	N     int
	Takes time.Duration
}

// bundle holds a queue, keys, and what handlers of jobs saw. It must be made in the bubble.
type bundle struct {
	*testing.T
	engine  *localqueue.Engine
	queue   queue.Queue
	keys    *perkey.Keys
	options *listener.Options[job] // without a log
	begin   time.Time

	mu      sync.Mutex
	running map[string]int // handlers, by key; guarded by mu
	atOnce  int            // most handlers at once; guarded by mu
	done    []finished     // in this order; guarded by mu
	faults  []string       // what must not happen; guarded by mu
}

// finished is a handler that has returned.
type finished struct {
	key     string
	n       int
	began   time.Duration // since the beginning of the test
	attempt int
}

func setup(t *testing.T, o *perkey.Options) *bundle {
	t.Helper()
	b := &bundle{T: t, engine: must(localqueue.New(&localqueue.Options{Seed: 1})), begin: time.Now(), running: map[string]int{}}
	b.queue = b.newQueue("jobs")
	keys, err := perkey.New(o)
	if err != nil {
		t.Fatal(err)
	}
	b.keys = keys
	b.options = &listener.Options[job]{Logger: slog.New(slog.DiscardHandler)}
	return b
}

func (b *bundle) newQueue(name string) queue.Queue {
	b.Helper()
	q := b.engine.Queue(queue.Name{Account: "test", Queue: name})
	if err := q.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	return q
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, o *perkey.Options, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t, o)) })
}

// send sends a job of a key.
func (b *bundle) send(key string, n int, takes time.Duration) {
	b.Helper()
	if _, err := producer.New[job](b.queue, nil).Send(b.Context(), job{n, takes}, &producer.SendOptions{Key: key}); err != nil {
		b.Fatal(err)
	}
}

// flood sends n jobs of a key.
func (b *bundle) flood(key string, n int, takes time.Duration) {
	b.Helper()
	for i := range n {
		b.send(key, i, takes)
	}
}

// handle takes as long as the job says, and checks that it is the only one of its key.
func (b *bundle) handle(ctx context.Context, m *listener.Message[job]) error {
	began := b.enter(m.Key)
	defer b.leave(m.Key)
	if !waiting.For(m.Body.Takes, ctx.Done()) {
		return ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done = append(b.done, finished{m.Key, m.Body.N, began, m.Attempt})
	return nil
}

// enter notes that a handler of the key runs. Without a key any number may.
func (b *bundle) enter(key string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[key]++; key != "" && b.running[key] > 1 {
		b.faults = append(b.faults, fmt.Sprintf("after %v: %d handlers run for key %q, want 1", time.Since(b.begin), b.running[key], key))
	}
	all := 0
	for _, n := range b.running {
		all += n
	}
	b.atOnce = max(b.atOnce, all)
	return time.Since(b.begin)
}

func (b *bundle) leave(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[key]--
}

// limited returns the handler with a limit for each key.
func (b *bundle) limited(h listener.Handler[job]) listener.Handler[job] {
	return perkey.Wrap(b.keys, h)
}

// start runs a listener of the bundle's queue. The function that it returns stops it.
func (b *bundle) start(h listener.Handler[job]) (l *listener.Listener[job], stop func()) {
	b.Helper()
	l = listener.New(b.queue, h, b.options)
	return l, b.run(l)
}

// run runs something that has been made, such as a listener.
func (b *bundle) run(l interface{ Run(context.Context) error }) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	return func() {
		b.Helper()
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run: got error %v, want nil", err)
		}
	}
}

// advance lets fake time pass and waits for its effects.
func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets time pass until so many jobs are done, at most for the given time.
func (b *bundle) until(n int, limit time.Duration) {
	b.Helper()
	for begin := time.Now(); b.count("") < n; advance(time.Second) {
		if time.Since(begin) > limit {
			b.Fatalf("after %v: got %d of %d jobs done; keys: %+v", limit, b.count(""), n, b.keys.State())
		}
	}
}

// count returns how many jobs of a key are done, or of all.
func (b *bundle) count(key string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.done {
		if key == "" || f.key == key {
			n++
		}
	}
	return n
}

// wantEach checks that of each key that many jobs are done, each once and in its first attempt.
func (b *bundle) wantEach(want map[string]int) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	seen, got := map[string]int{}, map[string]int{}
	for _, f := range b.done {
		got[f.key]++
		if seen[fmt.Sprint(f.key, f.n)]++; seen[fmt.Sprint(f.key, f.n)] > 1 || f.attempt != 1 {
			b.Errorf("got %+v for the %dth time, want each job once and in its first attempt", f, seen[fmt.Sprint(f.key, f.n)])
		}
	}
	for key, n := range want {
		if got[key] != n {
			b.Errorf("jobs of key %q done: got %d, want %d", key, got[key], n)
		}
	}
}

// wantFree checks that no key is held and nothing waits, so that no memory is taken.
func (b *bundle) wantFree() {
	b.Helper()
	if s := b.keys.State(); s.Held != 0 || s.Waiting != 0 || s.Longest != 0 {
		b.Errorf("got %+v, want no key held", s)
	}
	b.wantNoFaults()
}

// wantNoFaults checks that no two handlers ran for one key.
func (b *bundle) wantNoFaults() {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		b.Error(fault)
	}
}

// wantEmpty checks that the queue has no message left and no poison.
func (b *bundle) wantEmpty(l *listener.Listener[job]) {
	b.Helper()
	p, err := b.queue.Properties(b.Context())
	if st := l.State(); err != nil || p.Depth != 0 || st.Outcomes[listener.Poisoned] != 0 || st.Outcomes[listener.Retried] != 0 {
		b.Errorf("left: got %d messages, %v, %+v; want none, and no failure", p.Depth, err, st)
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
