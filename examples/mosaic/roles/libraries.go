package roles

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// maxLibraries is how many libraries a process caches. Usually there is one; several clients may use
// more.
const maxLibraries = 2

// libraries caches the tile libraries used last, by reference. Libraries never change, so the cache
// never becomes stale.
type libraries struct {
	store blob.Store

	// turn is held by the handler that gets a library, so that concurrent handlers of one
	// request read it once. It is a channel, so that waiting ends with the context.
	turn chan struct{}

	mu   sync.Mutex
	last []heldLibrary // most recent first; guarded by mu
}

type heldLibrary struct {
	ref     blob.Ref
	library *tiles.Library
}

func newLibraries(store blob.Store) *libraries {
	return &libraries{store: store, turn: make(chan struct{}, 1)}
}

// get returns a library. The error is poison if it is invalid, and [blob.ErrMissing] if it does not
// exist.
func (l *libraries) get(ctx context.Context, ref blob.Ref) (*tiles.Library, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if library := l.find(ref); library != nil {
		return library, nil
	}
	r, err := l.store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	library, err := tiles.Read(r)
	if errors.Is(err, tiles.ErrBadLibrary) {
		return nil, dispatcher.Poison(err)
	}
	if err != nil {
		return nil, err
	}
	l.hold(ref, library)
	return library, nil
}

func (l *libraries) find(ref blob.Ref) *tiles.Library {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, h := range l.last {
		if h.ref == ref {
			copy(l.last[1:i+1], l.last[:i])
			l.last[0] = h
			return h.library
		}
	}
	return nil
}

// hold caches a library and evicts the least recently used one if there are too many.
func (l *libraries) hold(ref blob.Ref, library *tiles.Library) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = append([]heldLibrary{{ref, library}}, l.last...)
	if len(l.last) > maxLibraries {
		l.last = l.last[:maxLibraries]
	}
}
