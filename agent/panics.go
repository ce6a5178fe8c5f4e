package agent

import (
	"fmt"

	"github.com/millrace/millrace/internal/hook"
)

// PanicError is a panic in a queue, an actuator or a source of wake-ups.
type PanicError struct {
	Value any    // passed to panic
	Stack string // the stack of the goroutine
}

// Error returns the value, and not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("it panicked: %v", e.Value) }

func panicked(f *hook.Failure) error { return &PanicError{Value: f.Value, Stack: string(f.Stack)} }
