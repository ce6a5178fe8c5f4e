// Package keyed connects package perkey, which lets one handler at a time run for each key, with
// package dispatcher, which calls the handlers of groups.
package keyed

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// DeliveryKey is the context key of the delivery that a handler belongs to. The value for an item
// of a group is an [Item].
type DeliveryKey struct{}

// Item is an item of a group. It has a place of its EachItem, except while it waits in a [Line].
type Item interface {
	context.Context // ends with the call of the handler
	Each() *Each    // nil if no EachItem handles it

	// Leave gives the place to other items and stops the time-out, until Enter returns true. Enter
	// waits for a place. It returns false if the item must not run any more, or waited for too long.
	Leave()
	Enter() bool
}

// Each is one call of an EachItem.
type Each struct {
	Places chan struct{} // has an element for each place that is taken
	lines  sync.Map      // *Line by key
}

// Line returns the line of a key.
func (e *Each) Line(key any) *Line {
	l, _ := e.lines.LoadOrStore(key, &Line{turn: make(chan struct{}, 1)})
	return l.(*Line)
}

// Line has the items of one call of an EachItem with one key. They take turns, in order of arrival.
type Line struct {
	turn  chan struct{} // has an element while an item has the turn
	delay time.Duration // of the last turn if its item comes again; the item with the turn writes it
}

// Acquire waits for the turn of the item and then acquires its key. While that fails, the item
// waits on as long as other items run. It returns zero if the item has the key. The turn then ends
// with leave, or with the item: middleware may have left the call behind. Otherwise Acquire returns
// the delay after which the item should come again. The items that wait return the same delay.
func (l *Line) Acquire(ctx context.Context, item Item, acquire func() time.Duration) (delay time.Duration, leave func()) {
	end := sync.OnceFunc(func() { <-l.turn })
	select {
	case l.turn <- struct{}{}:
		l.delay = 0
	default:
		item.Leave()
		select {
		case l.turn <- struct{}{}:
		case <-ctx.Done():
			return time.Second, nil
		}
	}
	for l.delay == 0 && item.Enter() {
		if l.delay = acquire(); l.delay == 0 {
			context.AfterFunc(item, end)
			return 0, end
		}
		if item.Leave(); l.rests(ctx, item) {
			l.delay = 0
		}
	}
	l.delay = max(l.delay, time.Second)
	defer end()
	return l.delay, nil
}

// rests lets the delay pass. It returns false as soon as no other item runs.
func (l *Line) rests(ctx context.Context, item Item) bool {
	for range l.delay / time.Second {
		if len(item.Each().Places) == 0 || !waiting.For(time.Second, ctx.Done()) {
			return false
		}
	}
	return true
}

// insideKey is the context key of the delivery that is handled inside of a key.
type insideKey struct{}

// Inside returns the context for a handler that is called inside of a key, and the item of ctx if
// it can wait in a line, or nil. An item inside of another key cannot: two of them could wait for
// each other.
func Inside(ctx context.Context) (inside context.Context, item Item) {
	delivery := ctx.Value(DeliveryKey{})
	if item, _ = delivery.(Item); item != nil && (item.Each() == nil || IsInside(ctx)) {
		item = nil
	}
	return context.WithValue(ctx, insideKey{}, delivery), item
}

// IsInside reports whether the delivery of the context is handled inside of a key.
func IsInside(ctx context.Context) bool {
	delivery := ctx.Value(DeliveryKey{})
	return delivery != nil && delivery == ctx.Value(insideKey{})
}
