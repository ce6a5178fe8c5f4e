package queue

import (
	"context"
	"fmt"
)

// Cause is why a request is sent, for those who count requests, such as package meter: an update may
// be a renewal, a give-back or a save. It travels in the context; see [WithCause]. The zero value is
// [CauseUnknown].
type Cause uint8

// The causes. Each request has one.
const (
	CauseUnknown  Cause = iota // nobody said why
	CauseFetch                 // a listener takes messages
	CauseRenew                 // a lease is renewed while its handler runs
	CauseSave                  // a handler saves its progress
	CauseStart                 // the start of a handler is recorded, after deliveries that ended in nothing
	CauseGiveBack              // a message is made visible again, now or after a delay
	CauseDelete                // a message is deleted: its job is done, discarded or a duplicate
	CausePoison                // a message is copied to the poison queue, deleted after that, or kept hidden as poison
	CauseDepth                 // the depth is read, to decide how many loops are needed or whether to wake workers
	CauseMetadata              // metadata are read or written
	CauseCreate                // a queue that is missing is created
	CauseSend                  // a producer sends a job
	CauseCancel                // a producer deletes a job that it sent
	CauseBrowse                // messages are looked at
	CauseRedrive               // a redrive reads, sends and deletes
	CausePurge                 // a purge reads and deletes
	CauseSyphon                // messages are brought home from backlog queues
	CauseLimit                 // tokens of a limit are taken, kept or given back
	CauseBeacon                // an instance reports in a control queue, or the reports are read
)

// causeNames are the names by cause. They are words of logs and JSON and must not change.
var causeNames = [...]string{
	CauseUnknown: "unknown", CauseFetch: "fetch", CauseRenew: "renew", CauseSave: "save", CauseStart: "start",
	CauseGiveBack: "giveback", CauseDelete: "delete", CausePoison: "poison", CauseDepth: "depth",
	CauseMetadata: "metadata", CauseCreate: "create", CauseSend: "send", CauseCancel: "cancel",
	CauseBrowse: "browse", CauseRedrive: "redrive", CausePurge: "purge", CauseSyphon: "syphon", CauseLimit: "limit",
	CauseBeacon: "beacon",
}

// Causes returns all causes, each at the index of its number.
func Causes() []Cause {
	all := make([]Cause, len(causeNames))
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// String returns the name of the cause, such as "fetch".
func (c Cause) String() string {
	if int(c) >= len(causeNames) {
		return fmt.Sprintf("Cause(%d)", int(c))
	}
	return causeNames[c]
}

// MarshalText returns the name of the cause, for JSON and logs. A cause that does not exist is an error.
func (c Cause) MarshalText() ([]byte, error) {
	if int(c) >= len(causeNames) {
		return nil, fmt.Errorf("queue: %v is no cause", c)
	}
	return []byte(c.String()), nil
}

// UnmarshalText parses what [Cause.MarshalText] returns.
func (c *Cause) UnmarshalText(text []byte) error {
	for i, name := range causeNames {
		if name == string(text) {
			*c = Cause(i)
			return nil
		}
	}
	return fmt.Errorf("queue: no cause has the name %q", text)
}

// request is what a context says of the requests that are sent with it.
type request struct {
	cause   Cause
	repeats int
}

// requestContext is a context that says it. It is a type of its own because each request is looked
// at: where it is the outermost context that costs next to nothing, unlike a search for a value.
type requestContext struct {
	context.Context
	request request
}

type requestKey struct{}

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func requestOf(ctx context.Context) request {
	c, ok := ctx.(*requestContext)
	if !ok {
		if c, ok = ctx.Value(requestKey{}).(*requestContext); !ok {
			return request{}
		}
	}
	return c.request
}

// WithCause returns a context for requests with this cause. What the context says of repeats stays.
// It allocates: a program that sends many requests with one cause should keep the context.
func WithCause(ctx context.Context, c Cause) context.Context {
	r := requestOf(ctx)
	r.cause = c
	return &requestContext{ctx, r}
}

// CauseOf returns the cause of requests with this context, [CauseUnknown] if nobody set one.
func CauseOf(ctx context.Context) Cause { return requestOf(ctx).cause }

// WithRepeats returns a context for a request that was sent n times before, and failed each time. The
// cause stays. A queue that bounds its requests may give a repeated one more time, because the time
// before may have been too short. An n below 0 counts as 0.
func WithRepeats(ctx context.Context, n int) context.Context {
	r := requestOf(ctx)
	if n = max(n, 0); n == r.repeats {
		return ctx
	}
	r.repeats = n
	return &requestContext{ctx, r}
}

// Repeats returns how often the request of this context was sent before.
func Repeats(ctx context.Context) int { return requestOf(ctx).repeats }
