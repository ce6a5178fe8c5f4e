package gather

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"github.com/millrace/millrace/blob"
)

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
	if err := (blob.Ref{Container: "any", Name: id}).Check(); err != nil {
		return fmt.Errorf("%w: the id: %w", ErrInvalid, err)
	}
	if n < 0 || n > most {
		return fmt.Errorf("%w: parts are numbered from 0, there is at least one and there are at most %d", ErrInvalid, MaxParts)
	}
	return nil
}

// failed adds to an error which gather it is about and what was attempted.
func failed(id, what string, err error) error {
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
