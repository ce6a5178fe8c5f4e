package roles

import (
	"context"
	"strings"

	"github.com/google/uuid"

	"github.com/millrace/millrace/listener"
)

// Roles is a set of roles. The zero value is empty.
type Roles uint8

// The roles.
const (
	Client     Roles = 1 << iota // submits requests and delivers mosaics
	Controller                   // chooses the tiles of a picture, and composes its mosaic
	Processor                    // renders slices

	// All is every role.
	All = Client | Controller | Processor
)

// Has reports whether the set has all roles of the other.
func (r Roles) Has(other Roles) bool { return r&other == other }

// String returns the names of the roles, such as "client, controller".
func (r Roles) String() string {
	var names []string
	for i, name := range []string{"client", "controller", "processor"} {
		if r.Has(1 << i) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// Step is a message that a role of this process has handled.
type Step struct {
	// Role is [Controller] for a picture whose slices were requested, and [Processor] for a
	// slice that was rendered.
	Role Roles

	Request uuid.UUID
	Slice   int // that was rendered, from 0; 0 for a picture
	Slices  int // of the request
}

// stepped is a message whose handling is a [Step].
type stepped interface {
	Message
	step() Step
}

// step implements stepped.
func (m ImageRequest) step() Step {
	return Step{Role: Controller, Request: m.RequestID, Slices: m.Slices}
}

// step implements stepped.
func (m SliceRequest) step() Step {
	return Step{Role: Processor, Request: m.RequestID, Slice: m.SliceSequence, Slices: m.Slices}
}

// reported reports messages that a handler has handled.
func reported[T stepped](h listener.Handler[T], handled func(Step)) listener.Handler[T] {
	return func(ctx context.Context, m *listener.Message[T]) error {
		err := h(ctx, m)
		if err == nil {
			handled(m.Body.step())
		}
		return err
	}
}
