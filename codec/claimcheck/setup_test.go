package claimcheck_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) {
	if where := os.Getenv(childVariable); where != "" {
		if err := runChild(where); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	azuritetest.Stop()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

const container = "claims"

// job is what the tests send. With Text over the limit of the bundle it is stored.
type job struct {
	Name string
	Text string
}

// limit is that of the bundle.
const limit = 200

// large is a text over the limit.
var large = strings.Repeat("x", 10*limit)

// bundle holds a queue, a store and claims. It must be made in the bubble.
type bundle struct {
	*testing.T
	queue  queue.Queue
	blobs  blob.Store
	store  *store // over blobs
	claims *claimcheck.Claims
}

func setup(t *testing.T) *bundle {
	t.Helper()
	b := &bundle{T: t, queue: must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "jobs"}), blobs: blob.Memory()}
	b.store = &store{Store: b.blobs}
	if err := b.queue.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	b.claims = b.newClaims(b.store)
	return b
}

// bubble runs a test with its bundle on a fake clock.
func bubble(t *testing.T, f func(*bundle)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(setup(t)) })
}

func (b *bundle) newClaims(s blob.Store) *claimcheck.Claims {
	b.Helper()
	c, err := claimcheck.New(s, container, &claimcheck.Options{Limit: limit, Retention: 24 * time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// send sends one job.
func (b *bundle) send(j job) producer.Sent {
	b.Helper()
	sent, err := producer.New(b.queue, &producer.Options[job]{Claims: b.claims}).Send(b.Context(), j, &producer.SendOptions{JobID: j.Name})
	if err != nil {
		b.Fatal(err)
	}
	return sent
}

// options returns the options of a listener on a short, fixed visibility.
func options(c listener.Claims) *listener.Options[job] {
	return &listener.Options[job]{
		Claims: c, Logger: slog.New(slog.DiscardHandler), Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(10 * time.Second)},
		Concurrency: 2, Fetch: listener.FetchOptions{Loops: listener.Loops{Max: 1}, Idle: listener.Idle{Max: 10 * time.Second}},
		RetryDelay: func(int, error) time.Duration { return time.Second },
		Poison:     listener.PoisonPolicy{MaxAttempts: 2},
	}
}

// run runs a listener for this long, and returns its last state.
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

// texts returns the texts of up to 32 visible messages of a queue.
func (b *bundle) texts(q queue.Queue) []string {
	b.Helper()
	batch, err := q.Peek(b.Context(), queue.MaxBatch)
	if err != nil && !errors.Is(err, queue.ErrQueueMissing) {
		b.Fatal(err)
	}
	var texts []string
	for _, m := range batch {
		texts = append(texts, m.Text)
	}
	return texts
}

// depth returns how many messages a queue has, hidden ones included.
func (b *bundle) depth(q queue.Queue) int64 {
	b.Helper()
	p, err := q.Properties(b.Context())
	if errors.Is(err, queue.ErrQueueMissing) {
		return 0
	}
	if err != nil {
		b.Fatal(err)
	}
	return p.Depth
}

// head returns the head of a text.
func (b *bundle) head(text string) envelope.Head {
	b.Helper()
	head, _, _, err := envelope.Open(text, codec.Envelope, envelope.Claims)
	if err != nil {
		b.Fatalf("%.100q: %v", text, err)
	}
	return head
}

// stored returns how many bodies wait and how many blobs there are.
func (b *bundle) stored() (waiting, all int) {
	b.Helper()
	for body, err := range b.claims.List(b.Context()) {
		if err != nil {
			b.Fatal(err)
		}
		if !body.Settled {
			waiting++
		}
	}
	for _, err := range b.blobs.List(b.Context(), container, "") {
		if err != nil {
			b.Fatal(err)
		}
		all++
	}
	return waiting, all
}

// wantStored checks how many bodies and how many tombstones there are.
func (b *bundle) wantStored(bodies, tombstones int) {
	b.Helper()
	if waiting, all := b.stored(); waiting != bodies || all-waiting != tombstones {
		b.Errorf("got %d bodies and %d tombstones, want %d and %d", waiting, all-waiting, bodies, tombstones)
	}
}

// store is a store that can be slow or out of order, and remembers what it was asked.
type store struct {
	blob.Store

	mu       sync.Mutex
	calls    []string              // guarded by mu
	before   func(op string) error // called before each operation; nil for nothing; set before use
	openSlow time.Duration         // set before use
	deleting func(blob.Ref) error  // called before each delete; nil for nothing; set before use
	ahead    time.Duration         // of this machine's clock; set before use
	timeless bool                  // it does not say its time; set before use
}

// byItsClock returns the times of the store's clock.
func (s *store) byItsClock(info blob.Info) blob.Info {
	info.Modified, info.Now = info.Modified.Add(s.ahead), info.Now.Add(s.ahead)
	if s.timeless {
		info.Now = time.Time{}
	}
	return info
}

func (s *store) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
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

func (s *store) act(op string) error {
	s.mu.Lock()
	s.calls = append(s.calls, op)
	s.mu.Unlock()
	if s.before != nil {
		return s.before(op)
	}
	return nil
}

// count returns how many operations there were.
func (s *store) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, one := range s.calls {
		if one == op {
			n++
		}
	}
	return n
}

func (s *store) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	op := "put"
	if o != nil {
		op = "tombstone"
	}
	if err := s.act(op); err != nil {
		return err
	}
	return s.Store.Put(ctx, ref, r, o)
}

func (s *store) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if err := s.act("open"); err != nil {
		return nil, err
	}
	if s.openSlow > 0 {
		select {
		case <-time.After(s.openSlow):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return s.Store.Open(ctx, ref)
}

func (s *store) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.act("delete"); err != nil {
		return err
	}
	if s.deleting != nil {
		if err := s.deleting(ref); err != nil {
			return err
		}
	}
	return s.Store.Delete(ctx, ref)
}

// refs returns the references of all blobs.
func (b *bundle) refs() []blob.Ref {
	b.Helper()
	var refs []blob.Ref
	for info, err := range b.blobs.List(b.Context(), container, "") {
		if err != nil {
			b.Fatal(err)
		}
		refs = append(refs, info.Ref)
	}
	return refs
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
