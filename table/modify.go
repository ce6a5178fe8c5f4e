package table

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// ErrUnchanged is what the function of [Modify] returns if there is nothing to write.
var ErrUnchanged = errors.New("the entity stays as it is")

// ModifyOptions configure [Modify]. Nil and the zero value mean the defaults.
type ModifyOptions struct {
	// Attempts is how often the entity is read and written at most. Defaults to 10.
	Attempts int
}

// Modify changes an entity as one step: it reads the entity, calls change, and writes the result if nobody else
// has written meanwhile. Otherwise it waits for some milliseconds, longer each time, and begins again, with what the
// entity is then. An entity that does not exist has no ETag and no properties when change gets it, and is
// inserted.
//
// Modify returns the entity as it is stored. The error is that of change, unless it is [ErrUnchanged]; that of a
// read or write; or [ErrPreconditionFailed] or [ErrExists] if other writers came first each time. A write without an
// answer fails with [ErrUnavailable], because it may have taken effect: the caller knows whether the change may be
// made twice.
func Modify(ctx context.Context, s Store, k Key, change func(e *Entity) error, o *ModifyOptions) (Entity, error) {
	attempts := 10
	if o != nil && o.Attempts != 0 {
		attempts = o.Attempts
	}
	if attempts < 1 {
		return Entity{}, invalid("", "Attempts is %d", attempts)
	}
	for n := 1; ; n++ {
		e, err := modifyOnce(ctx, s, k, change)
		if !errors.Is(err, ErrPreconditionFailed) && !errors.Is(err, ErrExists) && !errors.Is(err, errVanished) {
			return e, err
		}
		if n == attempts {
			return Entity{}, fmt.Errorf("other writers came first %d times: %w", n, err)
		}
		if err := waitForOthers(ctx, n); err != nil {
			return Entity{}, err
		}
	}
}

// errVanished means that an entity was deleted between read and write.
var errVanished = errors.New("deleted meanwhile")

func modifyOnce(ctx context.Context, s Store, k Key, change func(e *Entity) error) (Entity, error) {
	e, err := s.Get(ctx, k)
	missing := errors.Is(err, ErrMissing)
	if err != nil && !missing {
		return Entity{}, err
	}
	if missing {
		e = Entity{Key: k, Properties: map[string]any{}}
	}
	read := e.ETag
	if err := change(&e); errors.Is(err, ErrUnchanged) {
		return e, nil
	} else if err != nil {
		return Entity{}, err
	}
	e.Key, e.ETag = k, read
	if missing {
		e.ETag, err = s.Insert(ctx, e)
	} else if e.ETag, err = s.Update(ctx, e); errors.Is(err, ErrMissing) {
		err = fmt.Errorf("%w: %w", errVanished, err)
	}
	if err != nil {
		return Entity{}, err
	}
	return e, nil
}

// waitForOthers waits for a random part of 2 ms, doubled with each attempt up to 500 ms.
func waitForOthers(ctx context.Context, attempt int) error {
	longest := min(time.Millisecond<<min(attempt, 10), 500*time.Millisecond)
	timer := time.NewTimer(rand.N(longest) + 1)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
