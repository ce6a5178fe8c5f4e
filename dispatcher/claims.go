package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"runtime/pprof"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Claims keeps the bodies that messages only refer to, because they are too large for a message.
// Package claimcheck implements it. Implementations must be safe for concurrent use.
type Claims interface {
	// Limit returns the size of the largest body, in bytes, that [Message.Save] leaves in the
	// message if it fits.
	Limit() int

	// Put stores a body and returns its claim.
	Put(ctx context.Context, body []byte) (claim string, err error)

	// Open returns the body of a claim; [DeliveryFrom] returns the delivery. The errors of package
	// claimcheck say whether the body is gone, the job is done, or the claim is invalid, so an
	// implementation around it wraps them. An error that matches codec.ErrNewer leaves the message to
	// a newer worker. With any other one the body cannot be read for now.
	Open(ctx context.Context, claim string) ([]byte, error)

	// Settled is called when no message needs the body of a claim any more: the message was
	// deleted with certainty, because its job succeeded, now or before, or was discarded, or
	// Message.Save has replaced a body that it stored in the same delivery.
	Settled(ctx context.Context, claim string) error
}

// ClaimsError reports that Claims.Settled failed: no message needs the body, and it stays stored as
// an orphan. No job is lost. It is passed to Options.OnError. Package log/slog logs it as a group.
type ClaimsError struct {
	Delivery
	Claim string // of the body
	Err   error
}

// Error describes the error in one line.
func (e *ClaimsError) Error() string {
	return fmt.Sprintf("message %s of %v, attempt %d, does not need the body %s any more, which stays stored until it is purged: %v",
		string(e.ID), e.Queue, e.Attempt, e.Claim, e.Err)
}

// Unwrap returns Err.
func (e *ClaimsError) Unwrap() error { return e.Err }

// LogValue returns the attributes queue, message, job, kind, attempt, claim and error, as far as
// they apply, as a group.
func (e *ClaimsError) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

func (e *ClaimsError) attrs() []slog.Attr {
	return append(e.Delivery.attrs(), slog.String("claim", e.Claim), slog.Any("error", e.Err))
}

// unreadableClaimDelay is how long a message waits if its body cannot be read for now. It waits
// longer when the store has been away for longer.
const unreadableClaimDelay = 30 * time.Second

// understood returns the features of messages that the options allow to open.
func (o *Options) understood() []envelope.Feature {
	if o.Claims == nil {
		return []envelope.Feature{envelope.Groups}
	}
	return []envelope.Feature{envelope.Groups, envelope.Claims}
}

// sumOf returns a checksum that tells stored bodies apart within this process.
func sumOf(body []byte) uint64 { return maphash.Bytes(bodySeed, body) }

var bodySeed = maphash.MakeSeed()

// claim is the stored body of a message. The stage claims writes it, and then Message.Save: the
// handler calls that once at a time.
type claim struct {
	body     []byte   // until it is decoded
	sum      uint64   // sumOf the stored body
	unsure   []string // claims of bodies that the message may have instead, because the outcome of a save is unknown
	saved    bool     // whether a save has replaced the body that came with the message
	original string   // its claim then: a duplicate, or a copy in the poison queue, may have it too
}

// content returns the encoded body, wherever it came from.
func (v *delivery) content() []byte {
	if v.head.Claim != "" {
		return v.admission.claim.body
	}
	return v.body
}

// claims is the stage of Options.Claims.
type claims struct{ passive }

// admit opens the claim of the message. From before the download on the lease is renewed.
func (claims) admit(v *delivery) (dec decision, refused bool) {
	if v.head.Claim == "" {
		return decision{}, false
	}
	d := v.dispatcher
	if !v.tracked() {
		v.trackLease()
	}
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(context.WithValue(v.running.ctx.Context, deliveryKey{}, v))
	unwatch := d.failures.watch(func() { cancel(errStoreHangs) })
	var err error
	pprof.SetGoroutineLabels(d.handlers)
	returned := d.hooks.Call("Claims.Open", func() {
		var body []byte
		if body, err = d.options.Claims.Open(ctx, v.head.Claim); err == nil {
			v.admission.claim.body, v.admission.claim.sum = body, sumOf(body)
		}
	})
	pprof.SetGoroutineLabels(d.unlabelled)
	unwatch()
	cut := context.Cause(ctx)
	cancel(nil)
	switch ended := context.Cause(v.running.ctx.Context); {
	case !returned:
		err = errors.New("the download panicked")
	case err == nil && ended != nil:
		err = ended
	case err != nil && errors.Is(cut, errStoreHangs):
		err = fmt.Errorf("%w after %v: %w", errStoreHangs, time.Since(begin).Round(time.Second), err)
	}
	if err != nil {
		return unopened(&v.opened, err), true
	}
	d.failures.read(begin)
	return decision{}, false
}

// errStoreHangs is why a download was cut off.
var errStoreHangs = errors.New("no body could be read, and this download was given up")

// settled settles the claims of a message that was deleted. A message in the poison queue keeps its
// body, and so does a message that may not have been deleted.
func (claims) settled(v *delivery, outcome Outcome) {
	if v.settlement.deleted && (outcome == Deleted || outcome == Discarded || outcome == Duplicate) {
		for _, claim := range append(v.admission.claim.unsure, v.admission.claim.original, v.head.Claim) {
			v.settleClaim(claim)
		}
	}
}

// unopened decides on a message after its claim could not be opened.
func unopened(o *opened, err error) decision {
	switch {
	case errors.Is(err, envelope.ErrClaimGone):
		return poisoned(o, poison.ReasonBlobGone, err)
	case errors.Is(err, envelope.ErrClaimSettled):
		return decision{outcome: Duplicate, err: err}
	case errors.Is(err, envelope.ErrClaimInvalid):
		return poisoned(o, poison.ReasonUndecodable, err)
	case errors.Is(err, codec.ErrNewer):
		return unreadable(o, err)
	}
	dec := later(o, Snoozed, max(unreadableClaimDelay, o.dispatcher.failures.away()), err)
	dec.health = cutOff
	return dec
}

// store stores a body that is too large for the message, or leaves it in: then the claim is
// empty. It returns the text that carries the body.
func (o *opened) store(ctx context.Context, head envelope.Head, body []byte) (text, claim string, err error) {
	head.Claim = ""
	claims := o.dispatcher.options.Claims
	if claims == nil || !o.enveloped() || len(body) <= claims.Limit() {
		if text, err = envelope.Seal(head, body, o.format); err == nil {
			err = o.fits(head, text, body)
		}
		if claims == nil || !o.enveloped() || !errors.Is(err, queue.ErrTooLarge) {
			return text, "", err
		}
	}
	if claim, err = o.put(ctx, body); err != nil {
		return "", "", fmt.Errorf("store its body of %d bytes: %w", len(body), err)
	}
	head.Claim = claim
	if err = head.Check(); err == nil {
		text, err = envelope.Seal(head, nil, codec.Envelope)
	}
	if err == nil {
		err = o.fits(head, text, nil)
	}
	if err != nil {
		o.settleClaim(claim)
	}
	return text, claim, err
}

// put calls Claims.Put. A panic becomes an error.
func (o *opened) put(ctx context.Context, body []byte) (claim string, err error) {
	d := o.dispatcher
	if !d.hooks.Call("Claims.Put", func() { claim, err = d.options.Claims.Put(ctx, body) }) {
		return "", errHookPanicked
	}
	return claim, err
}

// settleClaim says that no message needs the body of the claim. If that fails the body stays as
// an orphan.
func (o *opened) settleClaim(claim string) {
	d := o.dispatcher
	if claim == "" || d.options.Claims == nil {
		return
	}
	ctx, cancel := context.WithTimeout(d.requests.context(), d.options.SettleTimeout)
	defer cancel()
	var err error
	if d.hooks.Call("Claims.Settled", func() { err = d.options.Claims.Settled(ctx, claim) }) && err != nil {
		d.options.OnError(&ClaimsError{Delivery: o.described(), Claim: claim, Err: err})
	}
}
