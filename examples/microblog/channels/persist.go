package channels

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/table"
)

// A call is repeated while its store is unavailable, with waits between that are short because a person may wait for it.
const (
	tries     = 4
	firstWait = 100 * time.Millisecond
)

// persist makes a call until it succeeds or fails for good, or has been made some times. A call that is repeated
// may have taken effect before.
func persist(ctx context.Context, call func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := call()
		if !table.Transient(err) || try == tries {
			return err
		}
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return err
		}
		wait *= 2
	}
}

func get(ctx context.Context, s table.Store, k table.Key) (e table.Entity, err error) {
	err = persist(ctx, func() error { e, err = s.Get(ctx, k); return err })
	return e, err
}

func query(ctx context.Context, s table.Store, q table.Query) (p table.Page, err error) {
	err = persist(ctx, func() error { p, err = s.Query(ctx, q); return err })
	return p, err
}

// modify changes an entity as one step. The change must be one that may be made twice.
func modify(ctx context.Context, s table.Store, k table.Key, change func(*table.Entity) error) error {
	return persist(ctx, func() error {
		_, err := table.Modify(ctx, s, k, change, nil)
		return err
	})
}
