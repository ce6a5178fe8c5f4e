package roles

import (
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/wakeup"
)

// M-03, M-04: a million records cost at most 4,400 requests to the queues and 12,000 to the store, in items of 1,000, whether
// processes are woken or poll. What the shipping side costs is counted too.
func TestAMillionRecordsCostFewRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("bills 200,000 records")
	}
	for _, woken := range []bool{true, false} {
		t.Run(fmt.Sprintf("woken=%v", woken), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { countRequests(t, woken) })
		})
	}
}

func countRequests(t *testing.T, woken bool) {
	const batches, perBatch, scale = 10, 10_000, 10
	w := newWorld(t)
	counted := &countingStore{Store: w.store, calls: make(map[string]int)}
	w.store = counted
	o := Options{Roles: Initiator | Worker | Controller}
	if woken {
		bus := new(wakeup.Bus)
		o.Source, o.Publisher = bus, bus
	}
	p := w.start(o, slow())
	for i := range batches {
		w.ship(p.System, fmt.Sprintf("2026-11-%02d", i+1), generate(uint64(i), perBatch), 5000)
	}
	for w.books.len() < batches {
		time.Sleep(time.Second)
	}
	synctest.Wait()
	time.Sleep(time.Second) // what is left of the batches is deleted
	counts := p.Counts()
	w.settle()
	p.end()
	w.check()

	queueCalls, blobCalls := counts.Total().Requests*scale, counted.total()*scale
	table := fmt.Sprintf("a million records, items of %d, woken=%v\n", DefaultGroup, woken)
	for _, line := range counts {
		table += fmt.Sprintf("%8d  queue: %v (%v)\n", line.Requests*scale, line.Operation, line.Cause)
	}
	for _, name := range slices.Sorted(maps.Keys(counted.calls)) {
		table += fmt.Sprintf("%8d  store: %s\n", counted.calls[name]*scale, name)
	}
	t.Logf("%s%8d  queue calls\n%8d  store calls", table, queueCalls, blobCalls)
	if queueCalls > 4400 {
		t.Errorf("queue calls: got %d, want at most 4400", queueCalls)
	}
	if blobCalls > 12000 {
		t.Errorf("store calls: got %d, want at most 12000", blobCalls)
	}
	if counted.most != 1 {
		t.Errorf("parts in memory at once: got %d, want 1", counted.most)
	}
}

// countingStore counts the calls of a store, and the parts that are open at once.
type countingStore struct {
	blob.Store

	mu    sync.Mutex
	calls map[string]int // by operation and container; guarded by mu
	open  int            // parts; guarded by mu
	most  int            // of open; guarded by mu
}

func (s *countingStore) count(op, container string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[strings.TrimPrefix(container, "billing-")+" "+op]++
}

func (s *countingStore) total() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, calls := range s.calls {
		n += int64(calls)
	}
	return n
}

func (s *countingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	s.count("put", ref.Container)
	return s.Store.Put(ctx, ref, r, o)
}

func (s *countingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	s.count("create", ref.Container)
	return s.Store.Create(ctx, ref, r, o)
}

func (s *countingStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.count("open", ref.Container)
	r, err := s.Store.Open(ctx, ref)
	if err == nil && ref.Container == partsContainer && !strings.HasSuffix(ref.Name, "/end") {
		s.opened(1)
		r.ReadCloser = closing{r.ReadCloser, func() { s.opened(-1) }}
	}
	return r, err
}

func (s *countingStore) opened(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	s.most = max(s.most, s.open)
}

type closing struct {
	io.ReadCloser
	closed func()
}

func (c closing) Close() error {
	c.closed()
	return c.ReadCloser.Close()
}

func (s *countingStore) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	s.count("stat", ref.Container)
	return s.Store.Stat(ctx, ref)
}

func (s *countingStore) Delete(ctx context.Context, ref blob.Ref) error {
	s.count("delete", ref.Container)
	return s.Store.Delete(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	s.count("list", container)
	return s.Store.List(ctx, container, prefix)
}
