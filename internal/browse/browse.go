// Package browse reads a queue further than the 32 messages that a peek shows. It takes a page of
// messages under a short lease, shows it, and gives back what the caller does not settle.
//
// A message that is given back is visible at once, behind the others. Its envelope accounts for
// the delivery, so that nothing counts as lost; a message without an envelope keeps a dequeue
// count that is one higher. A page costs one request, and each message that is given back
// another.
package browse

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// DefaultLease is how long a page is hidden unless Options says otherwise.
const DefaultLease = 30 * time.Second

// MinLease is the shortest lease of a page: service times are whole seconds.
const MinLease = 2 * time.Second

const (
	// margin is how much earlier than the service a lease is taken to end.
	margin = time.Second

	// maxStale is how many messages in a row that are not new to the reader end it: three pages.
	// The service promises no order, so that one page does not prove that all were seen.
	maxStale = 3 * queue.MaxBatch

	// staleDelay hides messages that came again, so that others come up.
	staleDelay = time.Second

	// maxReturns is how many messages are given back at a time.
	maxReturns = 16

	// patience is how long a dequeue that fails is repeated.
	patience = 30 * time.Second
)

// Options configures a reader. Nil and the zero value mean the defaults.
type Options struct {
	// Page is how many messages are taken at a time, 1…[queue.MaxBatch]. Defaults to MaxBatch.
	Page int

	// Lease is how long a page is hidden, at least [MinLease]. A process that is killed leaves
	// its page hidden for that long. Defaults to [DefaultLease].
	Lease time.Duration

	// Max is how many messages are shown at most. Defaults to 0, all.
	Max int

	// Before is called before each page is taken, with nothing in hand. Its error ends the walk.
	// Defaults to nil, no calls.
	Before func(context.Context) error
}

// Message is a message under the lease of its page.
type Message struct {
	queue.Message

	// Asked is the instant before the page was asked for, on our clock.
	Asked time.Time

	settled, again bool // written by the caller before it asks for the next page
}

// Settle keeps the message from being given back: the caller has deleted it, or the lease must
// end by itself.
func (m *Message) Settle() { m.settled = true }

// Again makes the reader show the message again when it comes up again.
func (m *Message) Again() { m.again = true }

// Page is some messages that were not shown before.
type Page struct {
	Messages []*Message

	// Depth is how many messages the queue had at the start, hidden and expired ones included;
	// -1 if it may not be read.
	Depth int64

	// Now is the service's time when the page was taken, in whole seconds.
	Now time.Time
}

// reader is one walk through a queue.
type reader struct {
	queue    queue.Queue
	options  Options
	requests context.Context // of requests, which the end of the walk does not cancel
	depth    int64
	seen     map[queue.ID]struct{}
	shown    int
	stale    int       // messages since the last that was new
	start    time.Time // of the walk, by the service's clock
}

// Pages yields the messages that were visible when it began, page by page, each message once. A
// message that was put later is not among them, so that a walk ends although messages keep
// coming. When the caller asks for the next page, or stops, what it has not settled is given
// back. An error is yielded last, with a page without messages; when ctx ends it is that of ctx,
// after the page in hand was given back. The cause of all requests is that of ctx.
func Pages(ctx context.Context, q queue.Queue, o *Options) iter.Seq2[*Page, error] {
	return func(yield func(*Page, error) bool) {
		r := &reader{queue: q, requests: context.WithoutCancel(ctx), seen: make(map[queue.ID]struct{})}
		if o != nil {
			r.options = *o
		}
		r.options.Page = cmp.Or(r.options.Page, queue.MaxBatch)
		r.options.Lease = cmp.Or(r.options.Lease, DefaultLease)
		r.options.Lease = time.Duration(driver.Seconds(r.options.Lease)) * time.Second
		if err := r.read(ctx, yield); err != nil {
			yield(&Page{Depth: r.depth}, err)
		}
	}
}

// read yields pages until there are no more, or the caller stops.
func (r *reader) read(ctx context.Context, yield func(*Page, error) bool) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	properties, err := r.queue.Properties(r.requests)
	switch {
	case errors.Is(err, queue.ErrUnauthorized): // a signature may allow the rest
		properties.Depth = -1
	case err != nil:
		return err
	}
	r.depth = properties.Depth
	for r.stale < maxStale {
		if r.depth >= 0 && int64(len(r.seen)) >= r.depth || r.options.Max > 0 && r.shown >= r.options.Max {
			return nil // all that was there at the start was shown, or as much as was asked for
		}
		if r.options.Before != nil {
			if err := r.options.Before(ctx); err != nil {
				return err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		fresh, empty, err := r.next(ctx)
		switch {
		case err != nil:
			return err
		case empty:
			return nil
		case len(fresh) == 0:
			continue
		}
		page := &Page{Messages: fresh, Depth: r.depth, Now: fresh[0].Until.Add(-r.options.Lease)}
		if !r.show(page, yield) {
			return nil
		}
	}
	return nil
}

// show yields a page and gives back what the caller did not settle, also if it panics.
func (r *reader) show(page *Page, yield func(*Page, error) bool) bool {
	r.shown += len(page.Messages)
	defer func() {
		var back []*Message
		for _, m := range page.Messages {
			if m.again {
				delete(r.seen, m.ID)
			}
			if !m.settled {
				back = append(back, m)
			}
		}
		r.giveBack(back, 0)
	}()
	return yield(page, nil)
}

// next takes a page, and gives back what is not new.
func (r *reader) next(ctx context.Context) (fresh []*Message, empty bool, err error) {
	asked, batch, err := r.take(ctx)
	if err != nil || len(batch) == 0 {
		return nil, true, err
	}
	if r.start.IsZero() {
		r.start = batch[0].Until.Add(-r.options.Lease)
	}
	var old []*Message
	for _, m := range batch {
		_, known := r.seen[m.ID]
		one := &Message{Message: m, Asked: asked}
		if known || m.Inserted.Truncate(time.Second).After(r.start) {
			old = append(old, one)
			continue
		}
		r.seen[m.ID] = struct{}{}
		fresh = append(fresh, one)
	}
	if r.stale += len(old); len(fresh) > 0 {
		r.stale = 0
	}
	r.giveBack(old, staleDelay)
	return fresh, false, nil
}

// take dequeues a page. The end of ctx does not cancel a dequeue that is under way, which might
// hide messages that nobody saw.
func (r *reader) take(ctx context.Context) (asked time.Time, batch []queue.Message, err error) {
	n := r.options.Page
	if r.depth >= 0 && r.stale == 0 { // those behind them were seen already
		n = int(min(int64(n), r.depth-int64(len(r.seen))))
	}
	if r.options.Max > 0 {
		n = min(n, r.options.Max-r.shown)
	}
	for {
		asked, batch, err = r.tryToTake(ctx, n)
		after, limited := retry.Limited(err)
		if !limited || !waiting.For(max(after, minLimitWait), ctx.Done()) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return asked, batch, err
}

// minLimitWait keeps a limit that says zero from being asked in a busy loop.
const minLimitWait = time.Millisecond

// tryToTake dequeues up to n messages, unless a limit does not allow it.
func (r *reader) tryToTake(ctx context.Context, n int) (asked time.Time, batch []queue.Message, err error) {
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = retry.Do(patient, r.queue.Name().Queue, queue.Transient, func(try context.Context) error {
		asked = time.Now()
		batch, err = r.queue.Dequeue(retry.Repeated(r.requests, retry.Repeats(try)), n, r.options.Lease)
		return err
	})
	return asked, batch, err
}

// giveBack makes messages visible after the delay. One that cannot be given back becomes
// visible when its lease ends.
func (r *reader) giveBack(messages []*Message, delay time.Duration) {
	var returns errgroup.Group
	returns.SetLimit(maxReturns)
	for _, m := range messages {
		returns.Go(func() error {
			r.giveBackOne(m, delay)
			return nil
		})
	}
	_ = returns.Wait()
}

func (r *reader) giveBackOne(m *Message, delay time.Duration) {
	ctx, cancel := context.WithDeadline(r.requests, m.Asked.Add(r.options.Lease-margin))
	defer cancel()
	text := Accounted(m.Text)
	_ = retry.Do(ctx, string(m.ID), queue.Transient, func(ctx context.Context) error {
		_, err := r.queue.Update(ctx, m.Lease, text, delay)
		if errors.Is(err, queue.ErrTooLarge) && text != m.Text { // no room for the record
			text = m.Text
			_, err = r.queue.Update(ctx, m.Lease, text, delay)
		}
		return err
	})
}

// Accounted returns the text of a message with this delivery accounted for in its envelope, so
// that it does not count as lost. A text without an envelope, or with one that this program
// cannot read, stays as it is.
func Accounted(text string) string {
	head, body, _, err := envelope.Open(text, codec.Envelope, envelope.Kinds, envelope.Claims, envelope.Groups)
	if err != nil {
		return text
	}
	head.Settled++
	sealed, err := envelope.Seal(head, body, codec.Envelope)
	if err != nil {
		return text
	}
	return sealed
}
