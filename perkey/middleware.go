package perkey

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/dispatcher"
)

// ErrBusy means that a job was postponed because its key was taken.
var ErrBusy = errors.New("another job of its key is running")

// Middleware lets one handler at a time run for each key of messages: Head.Key, which a producer sets by
// SendOptions.Key. It is safe for concurrent use.
func Middleware[T any](k *Keys) dispatcher.Middleware[T] {
	return MiddlewareBy(k, func(m *dispatcher.Message[T]) string { return m.Head.Key })
}

// MiddlewareBy is [Middleware] with the key that the function returns for a message; "" is none. The
// function must not change the message and must be safe for concurrent use. Its panic is a failed
// attempt of the message, as a panic of the handler is.
func MiddlewareBy[T any](k *Keys, key func(m *dispatcher.Message[T]) string) dispatcher.Middleware[T] {
	return func(next dispatcher.Handler[T]) dispatcher.Handler[T] {
		return func(ctx context.Context, m *dispatcher.Message[T]) error {
			name := key(m)
			if name == "" {
				return next(ctx, m)
			}
			admitted, delay := k.acquire(ctx, name, newTerms(m))
			if !admitted {
				return dispatcher.Postpone(delay, fmt.Errorf("%w: %.100q", ErrBusy, name))
			}
			defer k.release(name)
			return next(ctx, m)
		}
	}
}

// terms says how a job may wait.
type terms struct {
	postponable bool // whether it can be given back without an attempt
	slots       int  // of its listener
}

func newTerms[T any](m *dispatcher.Message[T]) terms {
	return terms{postponable: m.AttemptsRecorded(), slots: m.Concurrency()}
}

// places returns how many slots may be taken by jobs that wait, in all and of one key.
func (t terms) places() (all, ofKey int) {
	return t.slots / 2, t.slots / 4
}
