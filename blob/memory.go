package blob

import (
	"bytes"
	"context"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
)

// Memory returns an empty store in memory, for tests and small blobs. It is safe for
// concurrent use.
func Memory() Store { return &memory{blobs: make(map[Ref][]byte)} }

type memory struct {
	mu    sync.RWMutex
	blobs map[Ref][]byte // guarded by mu; the bytes never change
}

func (m *memory) Put(ctx context.Context, ref Ref, r io.Reader) error {
	data, err := m.read(ctx, ref, r)
	if err != nil {
		return failure("put", ref, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs[ref] = data
	return nil
}

func (m *memory) Create(ctx context.Context, ref Ref, r io.Reader) error {
	data, err := m.read(ctx, ref, r)
	if err != nil {
		return failure("create", ref, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.blobs[ref]; there {
		return failure("create", ref, ErrExists)
	}
	m.blobs[ref] = data
	return nil
}

// read reads the whole blob before the store changes.
func (m *memory) read(ctx context.Context, ref Ref, r io.Reader) ([]byte, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return nil, err
	}
	return io.ReadAll(&source{ctx: ctx, r: r})
}

func (m *memory) Open(ctx context.Context, ref Ref) (*Reader, error) {
	data, err := m.get(ctx, ref)
	if err != nil {
		return nil, failure("open", ref, err)
	}
	return &Reader{ReadCloser: io.NopCloser(bytes.NewReader(data)), Size: int64(len(data))}, nil
}

func (m *memory) Size(ctx context.Context, ref Ref) (int64, error) {
	data, err := m.get(ctx, ref)
	if err != nil {
		return 0, failure("stat", ref, err)
	}
	return int64(len(data)), nil
}

func (m *memory) get(ctx context.Context, ref Ref) ([]byte, error) {
	if err := ready(ctx, ref.Check()); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	data, there := m.blobs[ref]
	if !there {
		return nil, ErrMissing
	}
	return data, nil
}

func (m *memory) Delete(ctx context.Context, ref Ref) error {
	if err := ready(ctx, ref.Check()); err != nil {
		return failure("delete", ref, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, ref)
	return nil
}

func (m *memory) List(ctx context.Context, container, prefix string) iter.Seq2[Ref, error] {
	return func(yield func(Ref, error) bool) {
		refs, err := m.refs(ctx, container, prefix)
		yieldAll(ctx, refs, failureOfList(container, prefix, err), yield)
	}
}

func (m *memory) refs(ctx context.Context, container, prefix string) ([]Ref, error) {
	if err := ready(ctx, checkPrefix(container, prefix)); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var refs []Ref
	for ref := range m.blobs {
		if ref.Container == container && strings.HasPrefix(ref.Name, prefix) {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// yieldAll yields the result of a list until the context ends.
func yieldAll(ctx context.Context, refs []Ref, err error, yield func(Ref, error) bool) {
	for _, ref := range refs {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		if !yield(ref, nil) {
			return
		}
	}
	if err != nil {
		yield(Ref{}, err)
	}
}

func failureOfList(container, prefix string, err error) error {
	if err == nil {
		return nil
	}
	return failure("list", Ref{container, prefix}, err)
}
