package gather_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/blob/gather"
)

// bundle holds the parts of a test: gathers over one store that counts calls.
type bundle struct {
	*testing.T
	store *countingStore
	*gather.Gather
}

func setup(t *testing.T, o *gather.Options) *bundle {
	t.Helper()
	s := &countingStore{Store: blob.Memory(), calls: map[string]int{}}
	return &bundle{T: t, store: s, Gather: process(t, s, o)}
}

// process returns a Gather of a process of its own.
func process(t *testing.T, s blob.Store, o *gather.Options) *gather.Gather {
	t.Helper()
	g, err := gather.New(s, "batches", o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// put puts a part, whose content says which one it is.
func (b *bundle) put(id string, part int) {
	b.Helper()
	if err := b.Put(b.Context(), id, part, strings.NewReader(fmt.Sprint("part ", part))); err != nil {
		b.Fatal(err)
	}
}

func (b *bundle) putAll(id string, parts int) {
	b.Helper()
	for part := range parts {
		b.put(id, part)
	}
}

// wantComplete asks a process.
func (b *bundle) wantComplete(g *gather.Gather, id string, parts int, want bool) {
	b.Helper()
	if done, err := g.Complete(b.Context(), id, parts); err != nil || done != want {
		b.Fatalf("Complete of %s: got %v, %v; want %v", id, done, err, want)
	}
}

// end ends a gather.
func (b *bundle) end(id, result string) gather.End {
	b.Helper()
	end, err := b.Once(b.Context(), id, func(context.Context) ([]byte, error) { return []byte(result), nil })
	if err != nil {
		b.Fatal(err)
	}
	return end
}

// left returns the names of all blobs.
func (b *bundle) left() string {
	b.Helper()
	var names []string
	for info, err := range b.store.Store.List(context.Background(), "batches", "") {
		if err != nil {
			b.Fatal(err)
		}
		names = append(names, info.Ref.Name)
	}
	return strings.Join(names, " ")
}

func (b *bundle) wantLeft(want string) {
	b.Helper()
	if got := b.left(); got != want {
		b.Errorf("got blobs %q, want %q", got, want)
	}
}

// wantError wants an error that matches, and that says which gather it is about.
func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) || !strings.Contains(err.Error(), "gather") {
		t.Errorf("got error %v, want one of gather that matches %v", err, want)
	}
}

// countingStore counts the calls of a store.
type countingStore struct {
	blob.Store
	before func(ctx context.Context, op string, ref blob.Ref) error // of every call; nil for none

	mu    sync.Mutex
	calls map[string]int // by operation; guarded by mu
}

func (s *countingStore) call(ctx context.Context, op string, ref blob.Ref) error {
	s.mu.Lock()
	s.calls[op]++
	s.mu.Unlock()
	if s.before == nil {
		return nil
	}
	return s.before(ctx, op, ref)
}

// count returns the calls of one operation, or of all without one.
func (s *countingStore) count(op string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, calls := range s.calls {
		if op == "" || op == name {
			n += calls
		}
	}
	return n
}

func (s *countingStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.call(ctx, "create", ref); err != nil {
		return err
	}
	return s.Store.Create(ctx, ref, r, o)
}

func (s *countingStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if err := s.call(ctx, "open", ref); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, ref)
}

func (s *countingStore) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	if err := s.call(ctx, "stat", ref); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Stat(ctx, ref)
}

func (s *countingStore) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.call(ctx, "delete", ref); err != nil {
		return err
	}
	return s.Store.Delete(ctx, ref)
}

func (s *countingStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	if err := s.call(ctx, "list", blob.Ref{Container: container, Name: prefix}); err != nil {
		return func(yield func(blob.Info, error) bool) { yield(blob.Info{}, err) }
	}
	return s.Store.List(ctx, container, prefix)
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
