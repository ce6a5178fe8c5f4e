package gather

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/blob"
)

// MaxParts is how many parts a gather has at most.
const MaxParts = 1_000_000

// ErrInvalid means that an option or an argument is invalid: an id, the number of a part, a result that is too long.
// Nothing was done.
var ErrInvalid = errors.New("invalid argument")

// defaultRemember is the default of Options.Remember.
const defaultRemember = 1000

// Options configure a [Gather]. Nil and the zero value mean the defaults.
type Options struct {
	// Remember is for how many gathers that are not complete this process remembers a part that was missing, in
	// about 200 bytes each. It should exceed the gathers that are under way at a time: each part of one that was
	// forgotten lists the parts. Negative is an error. Defaults to 1,000.
	Remember int
}

// Gather knows the gathers of a container. Make one with [New]. It is safe for concurrent use, and so are any number of
// them on one container, in any number of processes.
type Gather struct {
	store     blob.Store
	container string
	watches   *watches
	ending    *turns
}

// New returns a Gather whose parts and ends are in a container of the store. Nothing else should be in that container
// under the ids of gathers. New calls nothing of the store. The error names what is invalid.
func New(store blob.Store, container string, o *Options) (*Gather, error) {
	if o == nil {
		o = &Options{}
	}
	var bad []error
	if store == nil {
		bad = append(bad, fmt.Errorf("%w: no store", ErrInvalid))
	}
	if err := blob.CheckContainer(container); err != nil {
		bad = append(bad, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	if o.Remember < 0 {
		bad = append(bad, fmt.Errorf("%w: Remember is %d", ErrInvalid, o.Remember))
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("gather: %w", errors.Join(bad...))
	}
	remember := o.Remember
	if remember == 0 {
		remember = defaultRemember
	}
	return &Gather{store: store, container: container, watches: newWatches(remember), ending: newTurns()}, nil
}

// Put stores a part, numbered from 0, with one call of the store. It returns nil if the part is stored already, whatever
// its content: the first content stays. If r fails, Put fails with the same error and stores nothing. It may have read r,
// or some of it, or nothing.
func (g *Gather) Put(ctx context.Context, id string, part int, r io.Reader) error {
	if err := check(id, part, MaxParts-1); err != nil {
		return failed(id, "put a part", err)
	}
	err := g.store.Create(ctx, g.Ref(id, part), r, nil)
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return failed(id, fmt.Sprintf("put part %d", part), err)
	}
	return nil
}

// Complete reports whether all parts from 0 to parts-1 are stored, or the end of the gather is recorded. It is called after
// each part, by whoever learns that the part is stored: then it is true for the last one, whichever that is and however
// many processes put parts. It may be true for several. It may be false if another caller, for which it was true, records the end
// and sweeps at the same time. Every call for a gather must have the same number of parts, 1 to
// [MaxParts]. It takes two calls of the store at most, plus one for each 5,000 parts beyond the first.
func (g *Gather) Complete(ctx context.Context, id string, parts int) (bool, error) {
	if err := check(id, parts-1, MaxParts-1); err != nil {
		return false, failed(id, fmt.Sprintf("look whether %d parts are there", parts), err)
	}
	complete, err := g.watches.get(id, parts).look(ctx, func(missing int) (next int, err error) {
		return g.look(ctx, id, parts, missing)
	})
	if err != nil {
		return false, failed(id, "look whether all parts are there", err)
	}
	if complete {
		g.watches.forget(id)
	}
	return complete, nil
}

// look returns a part that is missing, or nothing if there is none or the end is recorded. It takes a part that was missing
// before.
func (g *Gather) look(ctx context.Context, id string, parts, missing int) (int, error) {
	if missing == nothing {
		return g.list(ctx, id, parts)
	}
	stored, err := blob.Exists(ctx, g.store, g.Ref(id, missing))
	if err != nil {
		return nothing, err
	}
	if stored {
		return g.list(ctx, id, parts)
	}
	// Another process may have seen the part, recorded the end and deleted the part again.
	ended, err := blob.Exists(ctx, g.store, g.EndRef(id))
	if err != nil || ended {
		return nothing, err
	}
	return missing, nil
}

// list is look for a process that knows of no missing part.
func (g *Gather) list(ctx context.Context, id string, parts int) (int, error) {
	stored := make([]bool, parts)
	for ref, err := range g.refs(ctx, id) {
		if err != nil {
			return nothing, err
		}
		if ref == g.EndRef(id) {
			return nothing, nil
		}
		if n, ok := g.number(id, ref); ok && n < parts {
			stored[n] = true
		}
	}
	return choose(id, stored), nil
}

// Ref is where a part of a gather is stored, so that a message can name it, and a program open it or ask
// whether it is there. An id or a number that [Gather.Put] refuses has an invalid reference.
func (g *Gather) Ref(id string, part int) blob.Ref {
	return blob.Ref{Container: g.container, Name: fmt.Sprintf("%s/%06d", id, part)}
}

// EndRef is where the end of a gather is recorded; the content is the result.
func (g *Gather) EndRef(id string) blob.Ref {
	return blob.Ref{Container: g.container, Name: id + "/end"}
}
