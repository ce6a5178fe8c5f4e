package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// Each returns a handler that handles several jobs of a group at once: producer.SendGroup sends
// several jobs in one message. The concurrency is that of one group, beside those in the other slots;
// less than 1 counts as 1. A handler that is not made by Each handles the jobs of a group one after
// the other. A job that is in no group is handled alike with Each and without.
//
// Every item of a group is a job of its own for the handler: it has its own message, with Item and
// Items set, context, time-out and result, and its failure harms no other. The message of the group
// has one slot, one lease and one settlement:
//
//   - It is deleted when every item has succeeded or was discarded.
//   - An item that failed, or asked for [Retry], makes it come again, for what is left only: the items
//     that are done are recorded in the message. The attempts are those of the message.
//   - An item that asked for [Snooze], or that was interrupted, makes it come again without an attempt,
//     unless another one failed.
//   - An item that asked for [Poison], cannot be decoded, or failed at the last attempt is not handled
//     any more. When all others are done the message is moved to the poison queue, once, and a redrive
//     handles these items only.
//
// The delay is that of the first item whose result decides.
//
// What is done is recorded whenever the text must be sent anyway: by renewals, by Message.Save and
// when the message is given back. A worker that dies therefore repeats what was done since the last
// renewal.
//
// Each belongs inside of [All] and outside of [Batch], which then collects items. What is outside of
// it, such as interceptors and [Middleware], sees a group once, as its first item that is left;
// without Each it sees every item. If it returns another result than that of Each, that is the result
// of all items that are not done, and an error in place of nil that of all that were handled. Items
// whose handlers were not called because the context ended are handled at a later delivery, whatever
// it returns.
func Each[T any](h Handler[T], concurrency int) Handler[T] {
	e := &each[T]{handler: h, concurrency: max(concurrency, 1)}
	return e.handle
}

// each handles the items of groups.
type each[T any] struct {
	handler     Handler[T]
	concurrency int
}

func (e *each[T]) handle(ctx context.Context, m *Message[T]) error {
	if m.delivery == nil || m.delivery.group == nil {
		return e.handler(ctx, m)
	}
	v := m.delivery
	return v.eachItem(ctx, e, m.Item, e.concurrency, func(ctx context.Context, item int) {
		one := &typedItem[T]{job: v, message: m}
		if item != m.Item {
			h, ok := v.beginItem(item)
			if !ok {
				return
			}
			one = h.(*typedItem[T])
		}
		v.handleItem(ctx, item, one, func(ctx context.Context) error { return e.handler(ctx, one.message) })
	})
}

// typedItem is an item of a group with jobs of type T. It implements handling.
type typedItem[T any] struct {
	job     *typedJob[T]
	message *Message[T]
}

func (i *typedItem[T]) ownTimeout() time.Duration { return i.job.timeoutOf(i.message) }

func (i *typedItem[T]) callHandler(ctx context.Context) error {
	return i.job.jobs.Handler(ctx, i.message)
}

func (v *typedJob[T]) decodeItem(item int) (handling, error) {
	g := v.group
	// A copy: the handler may change in place what a codec does not copy, and another item may save.
	body, err := v.decodeJob(bytes.Clone(g.item(item)))
	if err != nil {
		return nil, err
	}
	m := v.newMessage(body, g.head)
	m.Item, m.Items = item, len(g.statuses)
	return &typedItem[T]{v, &m}, nil
}

// saveItem implements Message.Save for an item of a group.
func (v *typedJob[T]) saveItem(ctx context.Context, item int, body T) error {
	g := v.group
	if item < 0 || item >= len(g.statuses) {
		return fmt.Errorf("the group has no item %d", item)
	}
	encoded, err := v.encode(body)
	if err != nil {
		return err
	}
	select {
	case g.saving <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.saving }()
	g.mu.Lock()
	items := slices.Clone(g.items)
	g.mu.Unlock()
	items[item] = bytes.Clone(encoded) // the handler may change it later
	if err := v.save(ctx, items.Encode()); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = items
	return nil
}
