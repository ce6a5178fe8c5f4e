package table

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// ErrUnchanged is what the function of [Modify] returns, alone or wrapped, if there is nothing to write.
var ErrUnchanged = errors.New("the entity stays as it is")

// ModifyOptions configure [Modify]. Nil and the zero value mean the defaults.
type ModifyOptions struct {
	// Attempts is how often the entity is read and written at most. Defaults to 10.
	Attempts int
}

func (o *ModifyOptions) attempts() int {
	if o == nil || o.Attempts == 0 {
		return 10
	}
	return o.Attempts
}

// Modify changes an entity as one step: it reads the entity, calls change, and writes the result if nobody else
// has written meanwhile. Otherwise it waits for some milliseconds, longer each time, and begins again, with what the
// entity is then. An entity that does not exist has no ETag and no properties when change gets it, and is
// inserted. What change does besides changing the entity may happen several times. It cannot change the key.
//
// Modify returns the entity with its new version, and with Modified zero, which no store tells a writer; if change
// returned [ErrUnchanged], it returns the entity as change left it, with the version that was read. The error is that
// of change; that of a read or write; or, if other writers came first each time, [ErrPreconditionFailed], [ErrExists]
// or [ErrMissing]. A write without an answer fails with [ErrUnavailable], because it may have taken effect: the caller
// knows whether the change may be made twice.
func Modify(ctx context.Context, s Store, k Key, change func(e *Entity) error, o *ModifyOptions) (Entity, error) {
	attempts := o.attempts()
	if attempts < 1 {
		return Entity{}, Explain("modify", "", k, invalid("", "Attempts is %d", attempts))
	}
	for n := 1; ; n++ {
		e, lost, err := modifyOnce(ctx, s, k, change)
		if !lost {
			return e, err
		}
		if n == attempts {
			return Entity{}, fmt.Errorf("other writers came first %d times: %w", n, err)
		}
		if err := waitForOthers(ctx, n); err != nil {
			return Entity{}, Explain("modify", "", k, err)
		}
	}
}

// modifyOnce makes one attempt and reports whether it lost against another writer. Only the write can lose: change may
// fail with the same kinds of error, about other entities.
func modifyOnce(ctx context.Context, s Store, k Key, change func(e *Entity) error) (e Entity, lost bool, err error) {
	e, err = s.Get(ctx, k)
	missing := errors.Is(err, ErrMissing)
	if err != nil && !missing {
		return Entity{}, false, err
	}
	if missing {
		e = Entity{Key: k, Properties: map[string]any{}}
	}
	read := e.ETag
	if err := change(&e); errors.Is(err, ErrUnchanged) {
		e.Key, e.ETag = k, read
		return e, false, nil
	} else if err != nil {
		return Entity{}, false, err
	}
	e = e.Clone() // as it will be stored
	e.Key, e.ETag, e.Modified = k, read, time.Time{}
	if missing {
		e.ETag, err = s.Insert(ctx, e)
		lost = errors.Is(err, ErrExists)
	} else {
		e.ETag, err = s.Update(ctx, e)
		lost = errors.Is(err, ErrPreconditionFailed) || errors.Is(err, ErrMissing)
	}
	if err != nil {
		return Entity{}, lost, err
	}
	return e, false, nil
}

// waitForOthers waits for a random part of 2 ms, doubled with each attempt up to 500 ms. It is random and no function of
// the key, because those who must not wait equally long are the writers of one entity.
func waitForOthers(ctx context.Context, attempt int) error {
	longest := min(time.Millisecond<<min(attempt, 10), 500*time.Millisecond)
	if !waiting.For(rand.N(longest)+1, ctx.Done()) {
		return context.Cause(ctx)
	}
	return nil
}
