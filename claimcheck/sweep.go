package claimcheck

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/millrace/millrace/blob"
)

// Body is a stored body.
type Body struct {
	Ref    blob.Ref
	Size   int64     // in bytes
	Stored time.Time // by the store's clock
}

// Removed says what a sweep or a purge removed.
type Removed struct {
	Blobs int
	Bytes int64
}

// Waiting yields the bodies that are not tombstones: those whose messages wait, in a queue or a
// poison queue, and orphans. An error is yielded last, with a zero Body.
func (c *Claims) Waiting(ctx context.Context) iter.Seq2[Body, error] {
	return func(yield func(Body, error) bool) {
		for info, err := range c.store.List(ctx, c.container, folder) {
			if err != nil {
				yield(Body{}, fmt.Errorf("list bodies: %w", err))
				return
			}
			if !isTombstone(info) && !yield(Body{Ref: info.Ref, Size: info.Size, Stored: info.Modified}, nil) {
				return
			}
		}
	}
}

// isTombstone reports whether a blob has taken the place of a body.
func isTombstone(info blob.Info) bool { return info.Metadata[stateKey] == settled }

// Sweep removes the tombstones that are older than Options.Retention, by this machine's clock and
// the store's. Call it now and then, such as once a day; any number of processes may. With an
// error it returns what was removed before.
func (c *Claims) Sweep(ctx context.Context) (Removed, error) {
	removed, err := c.remove(ctx, func(info blob.Info) bool {
		return isTombstone(info) && time.Since(info.Modified) > c.options.Retention
	})
	if err != nil {
		return removed, fmt.Errorf("sweep tombstones: %w", err)
	}
	return removed, nil
}

// Purge removes the bodies, not the tombstones, that are older than the age, by this machine's
// clock and the store's. A message that still needs one of them becomes poison: the age must
// exceed the time that a message can spend in its queue and in the poison queue. An age of zero or
// less, and one below 1 µs, is an error. With an error it returns what was removed before.
func (c *Claims) Purge(ctx context.Context, age time.Duration) (Removed, error) {
	if age < time.Microsecond { // a number without a unit compiles
		return Removed{}, fmt.Errorf("purge bodies: the age %v is too short: give it a unit, such as 720*time.Hour", age)
	}
	removed, err := c.remove(ctx, func(info blob.Info) bool {
		return !isTombstone(info) && time.Since(info.Modified) > age
	})
	if err != nil {
		return removed, fmt.Errorf("purge bodies: %w", err)
	}
	return removed, nil
}

// remove removes the blobs that are chosen.
func (c *Claims) remove(ctx context.Context, chosen func(blob.Info) bool) (Removed, error) {
	var removed Removed
	for info, err := range c.store.List(ctx, c.container, folder) {
		if err != nil {
			return removed, err
		}
		if !chosen(info) {
			continue
		}
		if err := c.store.Delete(ctx, info.Ref); err != nil {
			return removed, err
		}
		removed.Blobs++
		removed.Bytes += info.Size
	}
	return removed, nil
}
