package poison

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
)

// Entry is one message of a poison queue.
type Entry struct {
	// Message is the message as it is in the poison queue. Its id is not that of the message
	// that became poison.
	queue.Message

	// Record is what the message holds. Its Version is 0 for a foreign message: one that was
	// copied bare, or that another program has put there. If a newer release has put it there, only
	// the Version is known, and [Redrive] skips it.
	Record Record
}

// NewEntry returns the entry of a message in a poison queue.
func NewEntry(m queue.Message) Entry {
	e := Entry{Message: m}
	if r, err := ParseRecord(m.Text); err == nil || errors.Is(err, codec.ErrNewer) {
		e.Record = r
	}
	if r := &e.Record; r.Version == version && r.Poisoned.IsZero() { // it had no room for that
		r.Poisoned, r.LastSeen = m.Inserted, m.Inserted
		if r.FirstSeen.IsZero() {
			r.FirstSeen = m.Inserted
		}
	}
	return e
}

// Foreign reports whether the message is no record.
func (e *Entry) Foreign() bool { return e.Record.Version == 0 }

// Original returns the text of the message that became poison: that of the record, or of a
// foreign message, or of a record of a newer release, its own.
func (e *Entry) Original() string {
	if e.Foreign() || e.Record.Version > version {
		return e.Text
	}
	return e.Record.Text
}

// Job returns the id of the job, or "" if the message does not say it.
func (e *Entry) Job() string {
	if !e.Foreign() {
		return e.Record.Job
	}
	head, _, _, _ := open(e.Text, codec.Auto) // one that cannot be read has none
	return head.ID
}

// Kind returns the kind of the job, or "" if it has none or the message does not say it.
func (e *Entry) Kind() string {
	head, _, _, _ := open(e.Original(), codec.Auto) // one that cannot be read has none
	return head.Kind
}

// Since returns when the message came into the poison queue, by the service's clock.
func (e *Entry) Since() time.Time { return e.Inserted }

// Filter chooses messages of a poison queue: those for which everything holds that is set. The
// zero value chooses all.
type Filter struct {
	// Reason is the reason in the record. A foreign message has none. Defaults to "", any.
	Reason Reason

	// Fingerprint is an error text, or the fingerprint of one: numbers and ids in it do not
	// matter. The whole must be equal. Defaults to "", any.
	Fingerprint string

	// Match is a text that the error, the stack or the decoded body contains. Of a body that is
	// stored elsewhere it is the reference to it that counts. Defaults to "", any.
	Match string

	// Job is the id of a job. Defaults to "", any.
	Job string

	// Kind is the kind of a job on a queue of several kinds. Defaults to "", any.
	Kind string

	// ID is the id of the message, in the poison queue or in the one that it came from. Defaults
	// to "", any.
	ID queue.ID

	// Older chooses messages that have been in the poison queue for at least this long.
	// Defaults to 0, any.
	Older time.Duration

	// Newer chooses messages that have been in the poison queue for at most this long. Defaults
	// to 0, any.
	Newer time.Duration
}

// check refuses ages without a unit.
func (f *Filter) check() error {
	return errors.Join(units.Wait("the filter's Older", f.Older), units.Wait("the filter's Newer", f.Newer))
}

// Chooses reports whether the filter chooses the entry at this time of the service. The clocks of
// this machine and of the service differ, which matters for Older and Newer.
func (f *Filter) Chooses(e *Entry, now time.Time) bool {
	age := now.Sub(e.Since())
	switch {
	case f.Reason != "" && f.Reason != e.Record.Reason,
		f.Fingerprint != "" && (e.Foreign() || naming.Fingerprint(f.Fingerprint) != e.Record.Fingerprint),
		f.Job != "" && f.Job != e.Job(),
		f.Kind != "" && f.Kind != e.Kind(),
		f.ID != "" && f.ID != e.ID && (e.Foreign() || f.ID != e.Record.ID),
		f.Older > 0 && age < f.Older,
		f.Newer > 0 && age > f.Newer:
		return false
	}
	text := f.Match
	if text == "" || strings.Contains(e.Record.Error, text) || strings.Contains(e.Record.Stack, text) {
		return true
	}
	head, body, _, err := open(e.Original(), codec.Auto)
	return strings.Contains(string(body), text) || strings.Contains(head.Claim, text) || err != nil && strings.Contains(e.Original(), text)
}

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
	if err := errors.Join(checkLease(o.Lease), o.Filter.check()); err != nil {
		return err
	}
	ctx = request.WithCause(ctx, request.CauseBrowse)
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
	if err := units.Visibility("a lease of", lease); err != nil {
		return err
	}
	if lease != 0 && (lease < browse.MinLease || lease > queue.MaxVisibility) {
		return fmt.Errorf("a lease of %v: it must be at least %v and at most %v", lease, browse.MinLease, queue.MaxVisibility)
	}
	return nil
}
