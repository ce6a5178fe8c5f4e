package gather

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/blob"
)

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
	return g.record(ctx, id, result)
}

func (g *Gather) record(ctx context.Context, id string, result []byte) (End, error) {
	err := g.store.Create(ctx, g.EndRef(id), bytes.NewReader(result), nil)
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
