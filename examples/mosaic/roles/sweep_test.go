package roles

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
)

// A sweep in which something fails says so, deletes the rest, and leaves nothing once it is repeated.
func TestASweepThatFailsIsRepeated(t *testing.T) {
	id, failure := uuid.New(), errors.New("the store is away")
	picture, task, slice := inputRef(id), sliceRef(sliceRequests, id, 0), laidRef(id, 0)
	for name, c := range map[string]struct {
		broken brokenStore
		left   []blob.Ref
	}{
		"the list of slices":      {brokenStore{list: sliceResponses}, []blob.Ref{slice}},
		"the list of tasks":       {brokenStore{list: sliceRequests}, []blob.Ref{task}},
		"the delete of a task":    {brokenStore{remove: task}, []blob.Ref{task}},
		"the delete of a picture": {brokenStore{remove: picture}, []blob.Ref{picture}},
	} {
		t.Run(name, func(t *testing.T) {
			store := blob.Memory()
			for _, ref := range []blob.Ref{picture, task, slice, endRef(id)} {
				if err := store.Put(t.Context(), ref, strings.NewReader("x"), nil); err != nil {
					t.Fatal(err)
				}
			}
			c.broken.Store, c.broken.failure = store, failure
			if err := jobsIn(&c.broken).sweep(t.Context(), id, false); !errors.Is(err, failure) {
				t.Errorf("got error %v, want that of the store", err)
			}
			wantOnly(t, store, append(c.left, endRef(id))...)
			if err := jobsIn(store).sweep(t.Context(), id, false); err != nil {
				t.Error(err)
			}
			wantOnly(t, store, endRef(id))
		})
	}
}

// A sweep that is stopped between two blobs says so.
func TestASweepThatIsStoppedSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	id, stop, store := uuid.New(), errors.New("the program ends"), blob.Memory()
	for _, ref := range []blob.Ref{inputRef(id), endRef(id)} {
		if err := store.Put(t.Context(), ref, strings.NewReader("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	stopping := &stoppingStore{Store: store, stop: func() { cancel(stop) }}
	if err := jobsIn(stopping).sweep(ctx, id, true); !errors.Is(err, stop) {
		t.Errorf("got error %v, want that of the stop", err)
	}
}

// stoppingStore ends a context once it has deleted something.
type stoppingStore struct {
	blob.Store
	stop func()
}

func (s *stoppingStore) Delete(ctx context.Context, ref blob.Ref) error {
	defer s.stop()
	return s.Store.Delete(ctx, ref)
}

// brokenStore fails at the lists of one container, or at the delete of one blob.
type brokenStore struct {
	blob.Store
	failure error
	list    string
	remove  blob.Ref
}

func (s *brokenStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	if container == s.list {
		return func(yield func(blob.Info, error) bool) { yield(blob.Info{}, s.failure) }
	}
	return s.Store.List(ctx, container, prefix)
}

func (s *brokenStore) Delete(ctx context.Context, ref blob.Ref) error {
	if ref == s.remove {
		return s.failure
	}
	return s.Store.Delete(ctx, ref)
}

// wantOnly checks which blobs of requests the store has.
func wantOnly(t *testing.T, store blob.Store, want ...blob.Ref) {
	t.Helper()
	left := map[blob.Ref]bool{}
	for _, ref := range want {
		left[ref] = true
	}
	for _, container := range []string{inputRef(uuid.Nil).Container, sliceRequests, sliceResponses} {
		for b, err := range store.List(t.Context(), container, "") {
			if err != nil {
				t.Fatal(err)
			}
			if !left[b.Ref] {
				t.Errorf("%v is left", b.Ref)
			}
			delete(left, b.Ref)
		}
	}
	for ref := range left {
		t.Errorf("%v is gone", ref)
	}
}
