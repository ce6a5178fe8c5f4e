package poison

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/browse"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// ParseRecord parses the text of a message in a poison queue. What records of earlier releases
// lack and follows from the rest is filled in. A message that had no room for a whole record has a
// Reason, a Queue, Attempts, Expires, and a Text. A text that is not a record, such as one moved
// bare, is an error. A record of a newer release is an error that wraps codec.ErrNewer.
func ParseRecord(text string) (Record, error) {
	r, err := poisonrecord.Parse(text)
	return Record(r), err
}

// Filter chooses messages of a poison queue: those that meet every condition that is set. The
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

// Options says which messages [List], [Purge], and [Redrive] work on, and how. Nil and the zero
// value mean all messages in the poison queue of the queue. A field that a function does not use
// is an error there.
type Options struct {
	// From is the poison queue. Defaults to the sibling of the queue with [Suffix]. It is required
	// if the name of the queue itself ends in Suffix, or is too long for it. List and Purge read
	// any queue that is set here.
	From queue.Queue

	// Filter chooses messages. Defaults to all, foreign ones included.
	Filter Filter

	// Max is how many chosen messages are yielded or worked on at most. Defaults to 0, all.
	// Negative is an error.
	Max int

	// Lease is how long a page of messages is hidden while it is worked on, in whole seconds, at
	// least 2 s. A process that is killed leaves its page hidden so long. List needs it only with
	// Beyond. Defaults to 30 s.
	Lease time.Duration

	// Beyond is for List. It reads further if the service shows [queue.MaxBatch] messages, which
	// is as far as it goes. It takes page after page under a lease and gives it back, which costs
	// one request a page and one a message, puts the messages in another order, hides each for a
	// moment, and raises the dequeue count of records and of messages without an envelope. Nothing
	// counts as a lost delivery. Defaults to false.
	Beyond bool

	// DryRun, of Purge and Redrive, sends and deletes nothing, and counts as done what would be.
	// It reads the queue as usual, with the same cost for what is given back. Defaults to false.
	DryRun bool

	// Rate, of Purge and Redrive, is how many messages a second are worked on at most, in bursts
	// of a second's worth. Defaults to 0, no bound. Negative is an error.
	Rate float64

	// Parallel, of Purge and Redrive, is how many messages are worked on at a time, and how many
	// may be in their queues twice after a redrive is killed. Defaults to 1. Negative is an error.
	Parallel int

	// Progress, of Purge and Redrive, is called after each page and each message that was worked
	// on, never by two goroutines at a time. It must not wait. Defaults to nil, no calls.
	Progress func(Summary)

	// Account is for Redrive. It opens the queues that records name, other than the queue of the
	// call. Every one must exist. Records of an account with another name are skipped. Defaults to
	// nil: records that name another queue are skipped.
	Account queue.Account

	// To is for Redrive. All chosen messages go there, whatever their records say, and foreign
	// messages too. Defaults to nil: records go back to where they came from, and foreign messages
	// are skipped.
	To queue.Queue

	// TTL is for Redrive: how long a message lives from now on, or [queue.Forever]. Defaults to 0,
	// what remained of its life; a message whose life has ended is not sent but counted as expired.
	TTL time.Duration
}

// A call is a function of this package that takes Options.
type call string

const (
	listing   call = "list"
	purging   call = "purge"
	redriving call = "redrive"
)

// withDefaults returns o with the poison queue of q.
func (o *Options) withDefaults(c call, q queue.Queue) (*Options, error) {
	all := Options{}
	if o != nil {
		all = *o
	}
	if hook.IsNil(q) {
		return nil, fmt.Errorf("%s poison messages: the queue is nil. Pass the queue that the jobs came from", c)
	}
	var err error
	if all.From == nil {
		all.From, err = poisonQueue(q)
	}
	if err == nil {
		err = all.validate(c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s poison messages of %v: %w", c, q.Name(), err)
	}
	return &all, nil
}

// poisonQueue returns the sibling of q for poison. A caller who passes a poison queue may mean what
// is in it, so its own sibling is not a default.
func poisonQueue(q queue.Queue) (queue.Queue, error) {
	name := q.Name().Queue
	if original, is := strings.CutSuffix(name, Suffix); is {
		return nil, fmt.Errorf("%s is a poison queue. Pass the queue that its jobs came from, probably %s. "+
			"If %s has a poison queue itself, set Options.From to that", name, original, name)
	}
	if err := driver.CheckName(name + Suffix); err != nil {
		return nil, fmt.Errorf("it has no poison queue by default. Set Options.From to its poison queue: %w", err)
	}
	return q.Sibling(Suffix), nil
}

func (o *Options) validate(c call) error {
	switch {
	case o.Rate < 0 || math.IsNaN(o.Rate):
		return fmt.Errorf("a rate of %v messages a second: it must not be negative", o.Rate)
	case o.Parallel < 0:
		return fmt.Errorf("%d messages at a time: it must be at least 1", o.Parallel)
	case o.Max < 0:
		return fmt.Errorf("at most %d messages: it must not be negative", o.Max)
	case o.Lease != 0 && (o.Lease < browse.MinLease || o.Lease > queue.MaxVisibility):
		return fmt.Errorf("a lease of %v: it must be at least %v and at most %v", o.Lease, browse.MinLease, queue.MaxVisibility)
	case o.TTL != 0 && o.TTL != queue.Forever && o.TTL < driver.MinTTL:
		return fmt.Errorf("a TTL of %v: it must be at least %v, or queue.Forever", o.TTL, driver.MinTTL)
	}
	if err := errors.Join(units.Wait("the filter's Older", o.Filter.Older), units.Wait("the filter's Newer", o.Filter.Newer)); err != nil {
		return err
	}
	for _, field := range []struct {
		name      string
		set, used bool
	}{
		{"Beyond", o.Beyond, c == listing},
		{"DryRun", o.DryRun, c != listing},
		{"Rate", o.Rate != 0, c != listing},
		{"Parallel", o.Parallel != 0, c != listing},
		{"Progress", o.Progress != nil, c != listing},
		{"Account", o.Account != nil, c == redriving},
		{"To", o.To != nil, c == redriving},
		{"TTL", o.TTL != 0, c == redriving},
	} {
		if field.set && !field.used {
			return fmt.Errorf("a %s does not use Options.%s: leave it out", c, field.name)
		}
	}
	return nil
}

// List yields what is in the poison queue of q, for the visible messages that the filter chooses.
// An error is yielded last, with a zero Record. What the service shows costs one request.
//
// The record of a foreign message has no Reason. A foreign message was copied bare, was put there
// by another program, or is a record of a newer release. Its Text is the text of the message, and
// the other fields describe the message in the poison queue. [Record.Body] returns the body of any
// record.
//
// With Beyond a page is given back when its last message was yielded, so they should be handled
// without waiting. The messages that have come since it began are not yielded.
func List(ctx context.Context, q queue.Queue, o *Options) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		all, err := o.withDefaults(listing, q)
		if err != nil {
			yield(Record{}, err)
			return
		}
		entries := poisonrecord.List(ctx, all.From, &poisonrecord.ListOptions{
			Filter: poisonrecord.Filter(all.Filter), Beyond: all.Beyond, Max: all.Max, Lease: all.Lease,
		})
		for e, err := range entries {
			if !yield(Record(e.Record), err) {
				return
			}
		}
	}
}
