package main

import (
	"context"
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/roles"
	"github.com/millrace/millrace/examples/internal/progress"
)

// tally shows how many records are charged, and knows how many batches are in the books. It is safe for concurrent use.
type tally struct {
	show    *progress.Progress
	all     int           // records
	changed chan struct{} // has a value after a batch came into the books

	mu      sync.Mutex
	seen    map[itemKey]struct{} // items that were charged; guarded by mu
	records int                  // of these items; guarded by mu
	tenths  int                  // of all records that were said, without a terminal; guarded by mu
	batches map[string]struct{}  // in the books; guarded by mu
}

// itemKey is an item of a batch.
type itemKey struct {
	batch string
	item  int
}

func newTally(show *progress.Progress, records int) *tally {
	return &tally{show: show, all: records, changed: make(chan struct{}, 1), seen: make(map[itemKey]struct{}), batches: make(map[string]struct{})}
}

// charged counts an item, once.
func (t *tally) charged(c roles.Charged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := itemKey{c.Batch, c.Item}
	if _, again := t.seen[key]; again {
		return
	}
	t.seen[key] = struct{}{}
	t.records += c.Records
	t.show.Bar("billing records", t.records, t.all)
	if tenths := t.records * 10 / max(t.all, 1); tenths > t.tenths && !t.show.Terminal() {
		t.tenths = tenths
		t.show.Say("%d of %d records are charged", t.records, t.all)
	}
}

// reported counts a batch, once.
func (t *tally) reported(b books.Batch) {
	t.mu.Lock()
	t.batches[b.Name] = struct{}{}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// wait waits until so many batches are in the books.
func (t *tally) wait(ctx context.Context, batches int) error {
	for {
		t.mu.Lock()
		done := len(t.batches)
		t.mu.Unlock()
		if done >= batches {
			return nil
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// countingStore counts calls. It is safe for concurrent use.
type countingStore struct {
	blob.Store
	calls atomic.Int64
}

// Put implements [blob.Store].
func (s *countingStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	s.calls.Add(1)
	return s.Store.Put(ctx, ref, r, o)
}

// Create implements [blob.Store].
func (s *countingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	s.calls.Add(1)
	return s.Store.Create(ctx, ref, r, o)
}

// Open implements [blob.Store].
func (s *countingStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	s.calls.Add(1)
	return s.Store.Open(ctx, ref)
}

// Stat implements [blob.Store].
func (s *countingStore) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	s.calls.Add(1)
	return s.Store.Stat(ctx, ref)
}

// Delete implements [blob.Store].
func (s *countingStore) Delete(ctx context.Context, ref blob.Ref) error {
	s.calls.Add(1)
	return s.Store.Delete(ctx, ref)
}

// listed is how many blobs a request lists.
const listed = 5000

// List implements [blob.Store].
func (s *countingStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		s.calls.Add(1)
		n := 0
		for info, err := range s.Store.List(ctx, container, prefix) {
			if n++; n > 1 && n%listed == 1 {
				s.calls.Add(1)
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
