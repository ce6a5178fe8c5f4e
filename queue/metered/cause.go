package metered

import (
	"context"

	"github.com/millrace/millrace/internal/request"
)

// Cause is why a request is sent: an update may be a renewal, a give-back or a save. It travels in the
// context, see [WithCause], and prints, also as JSON, as a word such as "fetch". The zero value is
// [CauseUnknown].
type Cause = request.Cause

// The causes. Each request has one.
const (
	CauseUnknown  Cause = request.CauseUnknown  // the context has no cause
	CauseFetch    Cause = request.CauseFetch    // a listener takes messages
	CauseRenew    Cause = request.CauseRenew    // a lease is renewed while its handler runs
	CauseSave     Cause = request.CauseSave     // a handler saves its progress
	CauseStart    Cause = request.CauseStart    // the start of a handler is recorded, after deliveries that ended in nothing
	CauseGiveBack Cause = request.CauseGiveBack // a message is made visible again, now or after a delay
	CauseDelete   Cause = request.CauseDelete   // a message is deleted: its job is done, discarded or a duplicate
	CausePoison   Cause = request.CausePoison   // a message is copied to the poison queue, deleted after that, or kept hidden as poison
	CauseDepth    Cause = request.CauseDepth    // the depth is read, to decide how many loops are needed or whether to wake workers
	CauseMetadata Cause = request.CauseMetadata // metadata are read or written
	CauseCreate   Cause = request.CauseCreate   // a queue that is missing is created
	CauseSend     Cause = request.CauseSend     // a producer sends a job
	CauseCancel   Cause = request.CauseCancel   // a producer deletes a job that it sent
	CauseBrowse   Cause = request.CauseBrowse   // messages are looked at
	CauseRedrive  Cause = request.CauseRedrive  // a redrive reads, sends and deletes
	CausePurge    Cause = request.CausePurge    // a purge reads and deletes
	CauseSyphon   Cause = request.CauseSyphon   // messages are brought home from backlog queues
	CauseLimit    Cause = request.CauseLimit    // tokens of a limit are taken, kept or given back
	CauseBeacon   Cause = request.CauseBeacon   // an instance reports in a control queue, or the reports are read
)

// Causes returns all causes, each at the index of its number.
func Causes() []Cause { return request.Causes() }

// WithCause returns a context for requests with this cause. What the context says of repeats stays.
// WithCause allocates: a program that sends many requests with one cause should keep the context.
func WithCause(ctx context.Context, c Cause) context.Context { return request.WithCause(ctx, c) }

// CauseOf returns the cause of requests with this context, [CauseUnknown] if it has none.
func CauseOf(ctx context.Context) Cause { return request.CauseOf(ctx) }

// WithRepeats returns a context for a request that was sent n times before, and failed each time. The
// cause stays. A queue that bounds its requests may give a repeated one more time, because the time
// before may have been too short. An n below 0 counts as 0.
func WithRepeats(ctx context.Context, n int) context.Context { return request.WithRepeats(ctx, n) }

// Repeats returns how often the request of this context was sent before.
func Repeats(ctx context.Context) int { return request.Repeats(ctx) }
