package blob

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/blobcheck"
	"github.com/millrace/millrace/internal/serviceerror"
)

// Memory returns an empty store in memory, for tests and small blobs. It is safe for
// concurrent use.
func Memory() Manager {
	return &memory{blobs: make(map[Ref]stored), public: make(map[string]bool)}
}

type memory struct {
	mu     sync.RWMutex
	blobs  map[Ref]stored  // guarded by mu
	public map[string]bool // by container; guarded by mu
}

// stored is one version of a blob. It never changes.
type stored struct {
	data     []byte
	modified time.Time
	metadata map[string]string
}

func (s stored) info(ref Ref) Info {
	return Info{Ref: ref, Size: int64(len(s.data)), Modified: s.modified, Now: time.Now(), Metadata: cloneMetadata(s.metadata)}
}

func (m *memory) Put(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error {
	return failure("put", ref, m.put(ctx, ref, r, o, false))
}

func (m *memory) Create(ctx context.Context, ref Ref, r io.Reader, o *PutOptions) error {
	return failure("create", ref, m.put(ctx, ref, r, o, true))
}

func (m *memory) put(ctx context.Context, ref Ref, r io.Reader, o *PutOptions, create bool) error {
	if err := readyToPut(ctx, ref, o); err != nil {
		return err
	}
	data, err := io.ReadAll(&source{ctx: ctx, r: r}) // the whole blob, before the store changes
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, exists := m.blobs[ref]; exists && create {
		return ErrExists
	}
	m.blobs[ref] = stored{data: data, modified: time.Now(), metadata: cloneMetadata(o.metadata())}
	return nil
}

func (m *memory) Open(ctx context.Context, ref Ref) (*Reader, error) {
	b, err := m.get(ctx, ref)
	if err != nil {
		return nil, failure("open", ref, err)
	}
	return &Reader{ReadCloser: &memoryReader{r: bytes.NewReader(b.data)}, Info: b.info(ref)}, nil
}

// memoryReader reads one version until it is closed.
type memoryReader struct{ r *bytes.Reader }

func (m *memoryReader) Read(p []byte) (int, error) {
	if m.r == nil {
		return 0, fs.ErrClosed
	}
	return m.r.Read(p)
}

func (m *memoryReader) Close() error {
	m.r = nil
	return nil
}

func (m *memory) Stat(ctx context.Context, ref Ref) (Info, error) {
	b, err := m.get(ctx, ref)
	if err != nil {
		return Info{}, failure("stat", ref, err)
	}
	return b.info(ref), nil
}

func (m *memory) get(ctx context.Context, ref Ref) (stored, error) {
	if err := ready(ctx, ref.check()); err != nil {
		return stored{}, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	b, exists := m.blobs[ref]
	if !exists {
		return stored{}, ErrMissing
	}
	return b, nil
}

func (m *memory) Delete(ctx context.Context, ref Ref) error {
	if err := ready(ctx, ref.check()); err != nil {
		return failure("delete", ref, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.blobs, ref)
	return nil
}

func (m *memory) List(ctx context.Context, container, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		found, err := m.find(ctx, container, prefix)
		for _, info := range found {
			if err = serviceerror.Ended(ctx); err != nil {
				break
			}
			if !yield(info, nil) {
				return
			}
		}
		if err != nil {
			yield(Info{}, failure("list", Ref{container, prefix}, err))
		}
	}
}

func (m *memory) find(ctx context.Context, container, prefix string) ([]Info, error) {
	if err := ready(ctx, blobcheck.Prefix(container, prefix)); err != nil {
		return nil, err
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	var found []Info
	for ref, b := range m.blobs {
		if ref.Container == container && strings.HasPrefix(ref.Name, prefix) {
			found = append(found, b.info(ref))
		}
	}
	slices.SortFunc(found, func(a, b Info) int { return strings.Compare(a.Ref.Name, b.Ref.Name) })
	return found, nil
}

func (m *memory) Public(ctx context.Context, container string) (bool, error) {
	if err := readyForContainer(ctx, container); err != nil {
		return false, failure("get access", Ref{Container: container}, err)
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.public[container], nil
}

func (m *memory) SetPublic(ctx context.Context, container string, public bool) error {
	if err := readyForContainer(ctx, container); err != nil {
		return failure("set access", Ref{Container: container}, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.public[container] = public
	return nil
}
