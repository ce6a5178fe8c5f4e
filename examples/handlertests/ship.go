// Package handlertests shows how a handler is tested: this is the handler, ship_test.go has
// the tests. They run it through the real pipeline, on a queue in memory and on a clock that
// does not make anybody wait.
//
//	go test -v ./examples/handlertests
package handlertests

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
)

// Order is a job.
type Order struct {
	ID, Address string
	NotBefore   time.Time
}

// Carrier brings parcels to people.
type Carrier interface {
	Collect(ctx context.Context, order, address string) error
}

// ErrNoAddress means that nobody knows where an order goes.
var ErrNoAddress = errors.New("no address")

// Ship returns the handler that gives orders to the carrier.
func Ship(c Carrier) listener.Handler[Order] {
	return func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.Address == "" {
			return listener.Poison(ErrNoAddress) // no attempt would help
		}
		if early := time.Until(m.Body.NotBefore); early > 0 {
			return listener.Snooze(early) // no failure, only too early
		}
		if err := c.Collect(ctx, m.Body.ID, m.Body.Address); err != nil {
			return fmt.Errorf("order %s: %w", m.Body.ID, err)
		}
		return nil
	}
}
