// Package keyed connects two packages that know different parts of a group: package perkey knows
// the keys of its items, and package dispatcher calls their handlers.
package keyed

import (
	"context"
	"errors"
	"sync/atomic"
)

// Key is one that at most one handler holds at a time.
type Key struct {
	Owner any // that grants it, compared by identity
	Name  string
}

// Func returns the key of an item by its message, or false if it has none.
type Func func(message any) (Key, bool)

// ErrLater is the error of middleware that asks for another call of the item in the same delivery.
var ErrLater = errors.New("its key is taken: it is called again in this delivery")

// Item is an item of a group while an Each calls its handler. The other items go on while it waits.
type Item interface {
	// Claim says which key the item has. It returns false if the item must return ErrLater, because
	// an earlier item of the group has the same key and is not done. The function tells the keys of
	// the other items; its address identifies it.
	Claim(key Key, of *Func) bool

	// Others reports whether another item could run in place of this one, and whether others run.
	Others() (startable, running bool)
}

// Call is one call of a handler. The zero value is ready to use.
type Call struct {
	Item Item // nil unless an Each makes the call; constant

	around atomic.Int32
}

// ContextKey is the key of the *Call in the context of a handler.
type ContextKey struct{}

// From returns the call that the context belongs to, or nil.
func From(ctx context.Context) *Call {
	c, _ := ctx.Value(ContextKey{}).(*Call)
	return c
}

// Enter notes that middleware begins to run the handler under a key. Leave ends that.
func (c *Call) Enter() {
	if c != nil {
		c.around.Add(1)
	}
}

// Leave ends what Enter has begun.
func (c *Call) Leave() {
	if c != nil {
		c.around.Add(-1)
	}
}

// Inside reports whether such middleware runs around the whole call, and so around all items of a
// group.
func (c *Call) Inside() bool { return c != nil && c.Item == nil && c.around.Load() > 0 }

// ItemOf returns the item of the call, or nil.
func (c *Call) ItemOf() Item {
	if c == nil {
		return nil
	}
	return c.Item
}
