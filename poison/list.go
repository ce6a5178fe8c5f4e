package poison

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/queue"
)

// ListOptions says what [List] yields. Nil and the zero value mean what a peek shows.
type ListOptions struct {
	// Filter chooses messages. Defaults to all.
	Filter Filter

	// Beyond reads further if the service shows [queue.MaxBatch] messages, which is as far as it
	// goes. It takes page after page under a lease and gives it back, which costs one request a
	// page and one a message, puts the messages in another order, hides each for a moment, and
	// raises the dequeue count of records and of messages without an envelope. Nothing counts as
	// a lost delivery. Defaults to false.
	Beyond bool

	// Max is how many chosen messages are yielded at most. Defaults to 0, all.
	Max int

	// Lease is how long a page is hidden with Beyond, in whole seconds, at least 2 s. It is given
	// back before that; only a process that is killed leaves it hidden so long. Defaults to 30 s.
	Lease time.Duration
}

// List yields the visible messages of a poison queue that the filter chooses. It also works on
// other queues. An error is yielded last, with a zero Entry. What the service shows costs one
// request.
//
// With Beyond a page is given back when its last entry was yielded, so entries should be handled
// without waiting. The messages that have come since it began are not yielded.
func List(ctx context.Context, q queue.Queue, o *ListOptions) iter.Seq2[Entry, error] {
	if o == nil {
		o = new(ListOptions)
	}
	return func(yield func(Entry, error) bool) {
		if err := o.list(ctx, q, yield); err != nil {
			yield(Entry{}, err)
		}
	}
}

// list yields entries until there are no more, or the caller stops.
func (o *ListOptions) list(ctx context.Context, q queue.Queue, yield func(Entry, error) bool) error {
	if err := checkLease(o.Lease); err != nil {
		return err
	}
	ctx = queue.WithCause(ctx, queue.CauseBrowse)
	shown, err := q.Peek(ctx, queue.MaxBatch)
	if err != nil {
		return err
	}
	left := o.Max
	chosen := func(m queue.Message, now time.Time) bool {
		e := NewEntry(m)
		if !o.Filter.Chooses(&e, now) {
			return true
		}
		left--
		return yield(e, nil) && left != 0
	}
	if !o.Beyond || len(shown) < queue.MaxBatch {
		for _, m := range shown {
			if !chosen(m, time.Now()) {
				break
			}
		}
		return nil
	}
	for page, err := range browse.Pages(ctx, q, &browse.Options{Lease: o.Lease}) {
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			m.DequeueCount-- // without ours
			if !chosen(m.Message, page.Now) {
				return nil
			}
		}
	}
	return nil
}

func checkLease(lease time.Duration) error {
	if lease != 0 && (lease < browse.MinLease || lease > queue.MaxVisibility) {
		return fmt.Errorf("a lease of %v: it must be at least %v and at most %v", lease, browse.MinLease, queue.MaxVisibility)
	}
	return nil
}
