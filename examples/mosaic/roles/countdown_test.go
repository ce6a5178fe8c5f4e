package roles

import (
	"context"
	"io"
	"iter"
	"sync"

	"github.com/millrace/millrace/blob"
)

// countdown kills a process after a number of operations on the store. A test that tries every number
// interrupts it between any two steps.
type countdown struct {
	power *power
	mu    sync.Mutex
	left  int // operations until the process dies; guarded by mu
}

func (c *countdown) tick() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left == 0 {
		c.power.off.Store(true)
	} else {
		c.left--
	}
	return c.power.on()
}

func (c *countdown) around(s blob.Store) blob.Store { return &countedStore{s, c} }

type countedStore struct {
	blob.Store
	count *countdown
}

func (s *countedStore) Put(ctx context.Context, ref blob.Ref, r io.Reader) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Put(ctx, ref, r)
}

func (s *countedStore) Create(ctx context.Context, ref blob.Ref, r io.Reader) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Create(ctx, ref, r)
}

func (s *countedStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if err := s.count.tick(); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, ref)
}

func (s *countedStore) Size(ctx context.Context, ref blob.Ref) (int64, error) {
	if err := s.count.tick(); err != nil {
		return 0, err
	}
	return s.Store.Size(ctx, ref)
}

func (s *countedStore) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, ref)
}

func (s *countedStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Ref, error] {
	if err := s.count.tick(); err != nil {
		return func(yield func(blob.Ref, error) bool) { yield(blob.Ref{}, err) }
	}
	return s.Store.List(ctx, container, prefix)
}
