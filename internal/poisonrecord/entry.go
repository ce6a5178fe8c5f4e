package poisonrecord

import (
	"context"
	"errors"
	"iter"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
)

// Entry is one message of a poison queue.
type Entry struct {
	// Message is the message in the poison queue. Its id is not that of the message that became
	// poison.
	queue.Message

	// Record is what the message holds. That of a foreign message describes the message itself,
	// and has no Reason.
	Record Record

	// Foreign means that the message is not a record that this release reads.
	Foreign bool

	// Newer is the error of a record of a newer release, which is Foreign too. Nil otherwise.
	Newer error
}

// NewEntry returns the entry of a message in a poison queue.
func NewEntry(m queue.Message) Entry {
	r, err := Parse(m.Text)
	if err != nil {
		e := Entry{Message: m, Foreign: true, Record: Record{
			ID: m.ID, DequeueCount: m.DequeueCount, Inserted: m.Inserted, FirstSeen: m.Inserted,
			LastSeen: m.Inserted, Poisoned: m.Inserted, Expires: expiry(m), Text: m.Text,
		}}
		if errors.Is(err, codec.ErrNewer) {
			e.Newer = err
		}
		head, _, _, _ := open(m.Text, codec.Auto) // a text that cannot be read has no job
		e.Record.Job = head.ID
		return e
	}
	if r.ID == "" { // it had no room for that
		r.ID = m.ID
	}
	if r.Poisoned.IsZero() {
		r.Poisoned, r.LastSeen = m.Inserted, m.Inserted
		if r.FirstSeen.IsZero() {
			r.FirstSeen = m.Inserted
		}
	}
	return Entry{Message: m, Record: r}
}

// Kind returns the kind of the job, or "" if it has none or the message does not say it.
func (e *Entry) Kind() string {
	head, _, _, _ := open(e.Record.Text, codec.Auto) // a text that cannot be read has no kind
	return head.Kind
}

// Filter has the fields of poison.Filter, so that each converts to the other.
type Filter struct {
	Reason      Reason
	Fingerprint string
	Match       string
	Job         string
	Kind        string
	ID          queue.ID
	Older       time.Duration
	Newer       time.Duration
}

// Chooses reports whether the filter chooses the entry at this time of the service. The clocks of
// this machine and of the service differ, which matters for Older and Newer.
func (f *Filter) Chooses(e *Entry, now time.Time) bool {
	age := now.Sub(e.Inserted)
	switch {
	case f.Reason != "" && f.Reason != e.Record.Reason,
		f.Fingerprint != "" && (e.Foreign || naming.Fingerprint(f.Fingerprint) != e.Record.Fingerprint),
		f.Job != "" && f.Job != e.Record.Job,
		f.Kind != "" && f.Kind != e.Kind(),
		f.ID != "" && f.ID != e.ID && f.ID != e.Record.ID,
		f.Older > 0 && age < f.Older,
		f.Newer > 0 && age > f.Newer:
		return false
	}
	text := f.Match
	if text == "" || strings.Contains(e.Record.Error, text) || strings.Contains(e.Record.Stack, text) {
		return true
	}
	head, body, _, err := open(e.Record.Text, codec.Auto)
	return strings.Contains(string(body), text) || strings.Contains(head.Claim, text) || err != nil && strings.Contains(e.Record.Text, text)
}

// ListOptions are the options of poison.List. Nil and the zero value mean what a peek shows.
type ListOptions struct {
	Filter Filter
	Beyond bool
	Max    int           // 0 means all
	Lease  time.Duration // of a page, with Beyond; 0 means [browse.DefaultLease]
}

// List is poison.List on the poison queue itself.
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
