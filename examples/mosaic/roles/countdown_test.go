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

func (s *countedStore) Put(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Put(ctx, ref, r, o)
}

func (s *countedStore) Create(ctx context.Context, ref blob.Ref, r io.Reader, o *blob.PutOptions) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Create(ctx, ref, r, o)
}

func (s *countedStore) Open(ctx context.Context, ref blob.Ref) (*blob.Reader, error) {
	if err := s.count.tick(); err != nil {
		return nil, err
	}
	return s.Store.Open(ctx, ref)
}

func (s *countedStore) Stat(ctx context.Context, ref blob.Ref) (blob.Info, error) {
	if err := s.count.tick(); err != nil {
		return blob.Info{}, err
	}
	return s.Store.Stat(ctx, ref)
}

func (s *countedStore) Delete(ctx context.Context, ref blob.Ref) error {
	if err := s.count.tick(); err != nil {
		return err
	}
	return s.Store.Delete(ctx, ref)
}

func (s *countedStore) List(ctx context.Context, container, prefix string) iter.Seq2[blob.Info, error] {
	if err := s.count.tick(); err != nil {
		return func(yield func(blob.Info, error) bool) { yield(blob.Info{}, err) }
	}
	return s.Store.List(ctx, container, prefix)
}
