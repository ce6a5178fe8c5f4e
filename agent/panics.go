package agent

import (
	"fmt"

	"github.com/millrace/millrace/internal/hook"
)

// PanicError is a panic, or a call of runtime.Goexit, in a queue, an actuator or a source of wake-ups.
type PanicError struct {
	Value any    // what was passed to panic; nil if it was runtime.Goexit
	Stack string // the stack of the goroutine
}

// Error returns the value, and not the stack.
func (e *PanicError) Error() string {
	if e.Value == nil {
		return "it called runtime.Goexit"
	}
	return fmt.Sprintf("it panicked: %v", e.Value)
}

func panicked(f *hook.Failure) error { return &PanicError{Value: f.Value, Stack: string(f.Stack)} }
