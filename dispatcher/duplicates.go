package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// Duplicates remembers which jobs were handled, so that a further message with such a job is
// deleted and not handled again, and holds the jobs in progress, so that their twins wait. Package
// dedupe implements it, and documents its guarantees. Implementations must be safe for concurrent
// use and should end with their context.
type Duplicates interface {
	// Begin holds a job for a message whose lease ends after this time. It is called for every
	// message, before its handler. The key names the job: the queue, the kind, and the dedupe key of
	// the message, or else its job id, or else its message id. It is readable text of any length and
	// has no other use than to be compared. The message is named by its id.
	//
	// ErrHandled means that the job was recorded: the message is deleted. ErrInProgress means that
	// another message holds it: this one is given back without an attempt. After any other error
	// the job is handled, and a HeldJob beside that error is used.
	Begin(ctx context.Context, key string, message queue.ID, lease time.Duration) (HeldJob, error)
}

// HeldJob is a job in progress that a message holds. Record or Release is called once and ends that.
type HeldJob interface {
	// Extend is called when the lease of the message was renewed, with the time until it ends. It may
	// be called beside the other methods and after them.
	Extend(ctx context.Context, lease time.Duration)

	// Record records the job. It is called when the handler has returned nil, before the message is
	// deleted. After an error the message is deleted all the same.
	Record(ctx context.Context) error

	// Release lets another message have the job, which was not handled to success. If the lease of
	// the message was lost, another delivery of it may hold the job already.
	Release(ctx context.Context, lost bool)
}

// Errors of [Duplicates]. Match them with errors.Is.
var (
	// ErrHandled means that the job of a message was handled before.
	ErrHandled = errors.New("the job was handled before")

	// ErrInProgress means that another message with the same job is being handled.
	ErrInProgress = errors.New("another message with the same job is being handled")
)

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

// LogValue returns the attributes queue, message, job, kind, attempt, handled and error, as far as
// they apply, as a group.
func (e *DuplicatesError) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

func (e *DuplicatesError) attrs() []slog.Attr {
	return append(e.Delivery.attrs(), slog.Bool("handled", e.Handled), slog.Any("error", e.Err))
}

var errHookPanicked = errors.New("it panicked")

// duplicates is the stage of Options.Duplicates.
type duplicates struct{ passive }

// admit refuses a message if its job was handled before or is in progress, or if its lease or the
// worker has ended meanwhile. The lease is not renewed yet, so the call has half of it at most.
func (duplicates) admit(v *delivery) (dec decision, refused bool) {
	v.admission.keepSlot()
	d := v.dispatcher
	ctx, cancel := context.WithTimeout(d.requests.context(), min(max(v.lease.left()/2, time.Second), d.options.SettleTimeout))
	defer cancel()
	err := errHookPanicked
	d.hooks.Call("Duplicates.Begin", func() {
		v.admission.job, err = d.options.Duplicates.Begin(ctx, duplicateKey(&v.opened), v.queued.ID, v.lease.left())
	})
	switch {
	case errors.Is(err, ErrHandled):
		return decision{outcome: Duplicate, err: ErrHandled}, true
	case d.handlersStopped():
		return decision{outcome: Returned}, true
	case v.lease.left() <= 0:
		d.visibility.recordTooShort(v.lease.visibility)
		return decision{outcome: Lost, err: errors.Join(ErrLeaseExpired, err)}, true
	case errors.Is(err, ErrInProgress):
		dec, refused = v.heldBack(twinDelay(&v.opened), err)
		dec.err = nil // nothing is wrong
		return dec, refused
	case err != nil:
		d.options.OnError(&DuplicatesError{Delivery: v.described(), Err: err})
	}
	return decision{}, false
}

// twinDelay returns how long a message waits for its twin: twice as long after each delivery, up to
// a minute.
func twinDelay(o *opened) time.Duration {
	return waiting.Doubled(time.Second, int(min(o.queued.DequeueCount-1, 60)), time.Minute)
}

// decided records that the job was handled, or releases it, before the slot is free: the next message
// may be of the same job. A lease that is still held is no longer renewed, and the delete needs the
// rest of it.
func (duplicates) decided(v *delivery, dec decision) {
	job := v.admission.job
	if job == nil {
		return
	}
	d := v.dispatcher
	limit := d.options.SettleTimeout
	if dec.outcome != Lost {
		limit = min(limit, max(v.lease.left()/2, time.Second))
	}
	ctx, cancel := context.WithTimeout(d.requests.context(), limit)
	defer cancel()
	if !dec.handled {
		d.hooks.Call("HeldJob.Release", func() { job.Release(ctx, dec.outcome == Lost) })
		return
	}
	err := errHookPanicked
	d.hooks.Call("HeldJob.Record", func() { err = job.Record(ctx) })
	if err != nil {
		d.options.OnError(&DuplicatesError{Delivery: v.described(), Handled: true, Err: err})
	}
}

// extendJob tells the held job that the lease of its message was renewed. It does not wait.
func (v *delivery) extendJob(lease time.Duration) {
	if job := v.admission.job; job != nil {
		d := v.dispatcher
		d.leases.workers.Go(func() {
			d.hooks.Call("HeldJob.Extend", func() { job.Extend(d.requests.context(), lease) })
		})
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
