package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"
)

// Duplicates remembers which jobs were handled, so that a further message with such a job is
// deleted and not handled again. Package dedupe implements it, and documents its guarantees.
// Implementations must be safe for concurrent use and should end with their context.
//
// A key names a job: the queue, the kind, and the dedupe key of the message, or else its job id, or
// else its message id. It is readable text of any length and has no other use than to be compared.
type Duplicates interface {
	// Handled reports whether a job with this key was recorded. It is called for every message,
	// before its handler. After an error the job is handled.
	Handled(ctx context.Context, key string) (bool, error)

	// Record records a job. It is called when the handler has returned nil, before the message is
	// deleted. After an error the message is deleted all the same.
	Record(ctx context.Context, key string) error
}

// DuplicatesError reports that Options.Duplicates failed for a message, which is handled and
// settled as if the option were not set: a duplicate of it may be handled. It is passed to
// Options.OnError. Package log/slog logs it as a group.
type DuplicatesError struct {
	Delivery
	Handled bool // the job was handled and could not be recorded; else it is handled although it may have been before
	Err     error
}

// Error describes the error in one line.
func (e *DuplicatesError) Error() string {
	what := "it is handled although it may have been handled before"
	if e.Handled {
		what = "it was handled, and a duplicate of it may be handled again"
	}
	return fmt.Sprintf("message %s of %v, attempt %d, %s: %v", string(e.ID), e.Queue, e.Attempt, what, e.Err)
}

// Unwrap returns Err.
func (e *DuplicatesError) Unwrap() error { return e.Err }

// LogValue returns the attributes of [DuplicatesError.Attrs] as a group.
func (e *DuplicatesError) LogValue() slog.Value { return slog.GroupValue(e.Attrs()...) }

// Attrs returns the log attributes queue, message, job, kind, attempt, handled and error, as far as
// they apply.
func (e *DuplicatesError) Attrs() []slog.Attr {
	return append(e.Delivery.attrs(), slog.Bool("handled", e.Handled), slog.Any("error", e.Err))
}

// errHandledBefore is why a duplicate is not handled.
var errHandledBefore = errors.New("the job was handled before")

var errHookPanicked = errors.New("it panicked")

// duplicates is the stage of Options.Duplicates.
type duplicates struct{ passive }

// admit refuses a message if its job was handled before, or if its lease or the worker has ended
// during the lookup. The lease is not renewed yet, so the call has half of it at most.
func (duplicates) admit(v *delivery) (dec decision, refused bool) {
	v.admission.keepSlot()
	d := v.dispatcher
	ctx, cancel := context.WithTimeout(d.requests.context(), min(max(v.lease.left()/2, time.Second), d.options.SettleTimeout))
	defer cancel()
	var known bool
	err := errHookPanicked
	d.hooks.Call("Duplicates.Handled", func() {
		var found bool
		if found, err = d.options.Duplicates.Handled(ctx, duplicateKey(&v.opened)); err == nil {
			known = found
		}
	})
	switch {
	case known:
		return decision{outcome: Duplicate, err: errHandledBefore}, true
	case d.handlersStopped():
		return decision{outcome: GivenBack}, true
	case v.lease.left() <= 0:
		d.visibility.recordTooShort(v.lease.visibility)
		return decision{outcome: Lost, err: errors.Join(ErrLeaseExpired, err)}, true
	case err != nil:
		d.options.OnError(&DuplicatesError{Delivery: v.described(), Err: err})
	}
	return decision{}, false
}

// decided records that the job was handled, before the slot is free: the next message may be of the
// same job. A lease that is still held is no longer renewed, and the delete needs the rest of it.
func (duplicates) decided(v *delivery, dec decision) {
	if !dec.handled {
		return
	}
	d := v.dispatcher
	limit := d.options.SettleTimeout
	if dec.outcome != Lost {
		limit = min(limit, max(v.lease.left()/2, time.Second))
	}
	ctx, cancel := context.WithTimeout(d.requests.context(), limit)
	defer cancel()
	err := errHookPanicked
	d.hooks.Call("Duplicates.Record", func() { err = d.options.Duplicates.Record(ctx, duplicateKey(&v.opened)) })
	if err != nil {
		d.options.OnError(&DuplicatesError{Delivery: v.described(), Handled: true, Err: err})
	}
}

// duplicateKey returns the key of the job, in the form of a URL: account/queue?kind=…&job=…. Its
// parts are escaped, so that no two jobs have one key.
func duplicateKey(o *opened) string {
	name, value := "message", string(o.queued.ID)
	switch {
	case o.head.Dedupe != "":
		name, value = "dedupe", o.head.Dedupe
	case o.head.ID != "":
		name, value = "job", o.head.ID
	}
	of := o.dispatcher.name
	var b strings.Builder
	b.WriteString(url.PathEscape(of.Account) + "/" + url.PathEscape(of.Queue) + "?")
	if o.head.Kind != "" {
		b.WriteString("kind=" + url.QueryEscape(o.head.Kind) + "&")
	}
	b.WriteString(name + "=" + url.QueryEscape(value))
	return b.String()
}
