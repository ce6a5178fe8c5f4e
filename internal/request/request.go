// Package request is what the context of a request to a queue says about it: why it is sent, and how
// often it was sent before. Package metered exports and documents its names.
package request

import (
	"context"
	"fmt"
	"slices"
)

// Cause is why a request is sent. The zero value is unknown.
type Cause uint8

// The causes. Each request has one.
const (
	CauseUnknown Cause = iota
	CauseFetch
	CauseRenew
	CauseSave
	CauseStart
	CauseGiveBack
	CauseDelete
	CausePoison
	CauseDepth
	CauseMetadata
	CauseCreate
	CauseSend
	CauseCancel
	CauseBrowse
	CauseRedrive
	CausePurge
	CauseSyphon
	CauseLimit
	CauseBeacon

	CauseCount = iota // how many there are
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
		return nil, fmt.Errorf("%v is not a cause", c)
	}
	return []byte(c.String()), nil
}

// UnmarshalText parses what [Cause.MarshalText] returns.
func (c *Cause) UnmarshalText(text []byte) error {
	if i := slices.Index(causeNames[:], string(text)); i >= 0 {
		*c = Cause(i)
		return nil
	}
	return fmt.Errorf("no cause has the name %q", text)
}

// about is what a context says of the requests that are sent with it.
type about struct {
	cause   Cause
	repeats int
}

// aboutContext is a context that says it. It is a type of its own because each request is looked
// at: where it is the outermost context that costs next to nothing, unlike a search for a value.
type aboutContext struct {
	context.Context
	about
}

type aboutKey struct{}

// Value implements [context.Context].
func (c *aboutContext) Value(key any) any {
	if key == (aboutKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func aboutOf(ctx context.Context) about {
	c, ok := ctx.(*aboutContext)
	if !ok {
		if c, ok = ctx.Value(aboutKey{}).(*aboutContext); !ok {
			return about{}
		}
	}
	return c.about
}

// WithCause returns a context for requests with this cause. It allocates.
func WithCause(ctx context.Context, c Cause) context.Context {
	r := aboutOf(ctx)
	r.cause = c
	return &aboutContext{ctx, r}
}

// CauseOf returns the cause of requests with this context.
func CauseOf(ctx context.Context) Cause { return aboutOf(ctx).cause }

// WithRepeats returns a context for a request that was sent n times before.
func WithRepeats(ctx context.Context, n int) context.Context {
	r := aboutOf(ctx)
	if n = max(n, 0); n == r.repeats {
		return ctx
	}
	r.repeats = n
	return &aboutContext{ctx, r}
}

// Repeats returns how often the request of this context was sent before.
func Repeats(ctx context.Context) int { return aboutOf(ctx).repeats }
