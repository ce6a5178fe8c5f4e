package gather

import (
	"context"
	"fmt"
	"iter"

	"github.com/millrace/millrace/blob"
)

// Part is a stored part, open for reading.
type Part struct {
	Number int // from 0
	*blob.Reader
}

// Parts opens the parts from 0 to parts-1, one after the other, with one call of the store each. A reader is closed before
// the next part is opened. An error is yielded last, with a nil Part; it matches [blob.ErrMissing] if a part is
// not stored, or not any more.
func (g *Gather) Parts(ctx context.Context, id string, parts int) iter.Seq2[*Part, error] {
	return func(yield func(*Part, error) bool) {
		if err := check(id, parts-1, MaxParts-1); err != nil {
			yield(nil, failed(id, fmt.Sprintf("open %d parts", parts), err))
			return
		}
		for n := range parts {
			more, err := g.open(ctx, id, n, yield)
			if err != nil {
				yield(nil, failed(id, fmt.Sprintf("open part %d of %d", n, parts), err))
			}
			if !more {
				return
			}
		}
	}
}

// open yields one part. The error is that of opening it.
func (g *Gather) open(ctx context.Context, id string, n int, yield func(*Part, error) bool) (more bool, err error) {
	r, err := g.store.Open(ctx, g.Ref(id, n))
	if err != nil {
		return false, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	return yield(&Part{Number: n, Reader: r}, nil), nil
}

// Stored returns the numbers of the parts that are stored, in ascending order, for a display of progress for example. It lists
// the parts: one call of the store for each 5,000.
func (g *Gather) Stored(ctx context.Context, id string) ([]int, error) {
	if err := check(id, 0, 0); err != nil {
		return nil, failed(id, "list the parts", err)
	}
	var stored []int
	for ref, err := range g.refs(ctx, id) {
		if err != nil {
			return nil, failed(id, "list the parts", err)
		}
		if n, ok := g.number(id, ref); ok {
			stored = append(stored, n)
		}
	}
	return stored, nil
}
