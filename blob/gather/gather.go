package gather

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/blobcheck"
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
	_ [0]sync.Mutex // go vet reports copies

	store     blob.Store
	container string
	watches   *watches
	ending    *turns
}

// New returns a Gather whose parts and ends are in a container of the store. Nothing else should be in that container
// under the ids of gathers. New calls nothing of the store. The error names what is invalid.
func New(store blob.Store, container string, o *Options) (*Gather, error) {
	o = cmp.Or(o, &Options{})
	var bad []error
	if store == nil {
		bad = append(bad, fmt.Errorf("%w: no store", ErrInvalid))
	}
	if err := blobcheck.Container(container); err != nil {
		bad = append(bad, fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	if o.Remember < 0 {
		bad = append(bad, fmt.Errorf("%w: Remember is %d", ErrInvalid, o.Remember))
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("gather: %w", errors.Join(bad...))
	}
	remember := cmp.Or(o.Remember, defaultRemember)
	return &Gather{store: store, container: container, watches: &watches{limit: remember, byID: make(map[string]*watch)}, ending: &turns{held: make(map[string]chan struct{})}}, nil
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

// MaxID is the length of an id in bytes at most.
const MaxID = 190

// check returns why an id or a number that goes from 0 to most is invalid.
func check(id string, n, most int) error {
	if strings.Contains(id, "/") {
		return fmt.Errorf("%w: the id has a slash", ErrInvalid)
	}
	if len(id) > MaxID {
		return fmt.Errorf("%w: the id has %d bytes, the limit is %d", ErrInvalid, len(id), MaxID)
	}
	if err := blobcheck.Ref("any", id); err != nil {
		return fmt.Errorf("%w: the id: %w", ErrInvalid, err)
	}
	if n < 0 || n > most {
		return fmt.Errorf("%w: parts are numbered from 0, there is at least one and there are at most %d", ErrInvalid, MaxParts)
	}
	return nil
}

// failed adds to an error which gather it is about and what was attempted; nil stays nil.
func failed(id, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("gather %.200q: %s: %w", id, what, err)
}

// refs lists the blobs of a gather: its parts, in the order of their numbers, and its end.
func (g *Gather) refs(ctx context.Context, id string) iter.Seq2[blob.Ref, error] {
	return func(yield func(blob.Ref, error) bool) {
		for b, err := range g.store.List(ctx, g.container, id+"/") {
			if !yield(b.Ref, err) || err != nil {
				return
			}
		}
	}
}

// number returns the number of the part that a blob is, and false for every other blob.
func (g *Gather) number(id string, ref blob.Ref) (int, bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(ref.Name, id+"/"))
	return n, err == nil && n >= 0 && n < MaxParts && ref == g.Ref(id, n)
}

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

// MaxResult is the length of a result in bytes at most. What is longer belongs into a blob of its own, which
// the result names.
const MaxResult = 1 << 20

// End is how a gather ended.
type End struct {
	Result []byte // what the function of [Gather.Once] returned; nil or empty if that was

	// First is whether this call of Once recorded the end. Of all calls, in all processes, one at most is told so; none if the
	// store's answer was lost or the process died before it came.
	First bool
}

// Once calls the function, records what it returns as the end of the gather, and returns the end, unless an end is recorded:
// then it returns that, and the function is not called. It does not look whether the gather is complete.
//
// In one process the function runs once at a time for each id. It may run again, or at the same time in another process:
// if a process dies before the end is recorded, if the end cannot be recorded, or if two processes are told at the
// same time that the gather is complete. The first end that is recorded counts, and every
// caller gets that one. So what the function does must be idempotent, for example under the id; its result need not be.
//
// An error of the function is returned unchanged, and no end is recorded; but if another process has recorded one meanwhile,
// and maybe deleted the parts that the function was reading, that end is returned. A result of more than [MaxResult]
// bytes is an error. Once takes two calls of the store, three if another process was faster or the function fails, and one
// if the end is recorded.
func (g *Gather) Once(ctx context.Context, id string, run func(ctx context.Context) (result []byte, err error)) (End, error) {
	if err := check(id, 0, 0); err != nil {
		return End{}, failed(id, "end", err)
	}
	release, err := g.ending.take(ctx, id)
	if err != nil {
		return End{}, failed(id, "wait for another handler that ends it", err)
	}
	defer release()
	if end, ended, err := g.End(ctx, id); err != nil || ended {
		return end, err
	}
	result, err := run(ctx)
	if err != nil {
		// Another process may have ended it meanwhile, and deleted the parts that the function reads.
		if end, ended, e := g.End(ctx, id); e == nil && ended {
			return end, nil
		}
		return End{}, err
	}
	if len(result) > MaxResult {
		return End{}, failed(id, "record the end", fmt.Errorf("%w: the result has %d bytes, the limit is %d", ErrInvalid, len(result), MaxResult))
	}
	err = g.store.Create(ctx, g.EndRef(id), bytes.NewReader(result), nil)
	switch {
	case err == nil:
		return End{Result: result, First: true}, nil
	case !errors.Is(err, blob.ErrExists):
		return End{}, failed(id, "record the end", err)
	}
	end, ended, err := g.End(ctx, id)
	if err == nil && !ended {
		err = failed(id, "read the end", fmt.Errorf("it was forgotten meanwhile: %w", blob.ErrMissing))
	}
	return end, err
}

// End returns the end of a gather, with one call of the store, and false if none is recorded. Its First is false.
func (g *Gather) End(ctx context.Context, id string) (End, bool, error) {
	if err := check(id, 0, 0); err != nil {
		return End{}, false, failed(id, "read the end", err)
	}
	r, err := g.store.Open(ctx, g.EndRef(id))
	if errors.Is(err, blob.ErrMissing) {
		return End{}, false, nil
	}
	if err != nil {
		return End{}, false, failed(id, "read the end", err)
	}
	defer func() { _ = r.Close() }() // nothing was written
	result, err := io.ReadAll(io.LimitReader(r, MaxResult+1))
	if err == nil && len(result) > MaxResult {
		err = fmt.Errorf("%v has more than %d bytes, and no end has", r.Ref, MaxResult)
	}
	if err != nil {
		return End{}, false, failed(id, "read the end", err)
	}
	return End{Result: result}, true, nil
}
