// Package handlertests shows how to test a handler: this file has the handler, ship_test.go has
// the tests. They run it through the real pipeline, on an in-memory queue and a fake clock.
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

// Carrier delivers parcels.
type Carrier interface {
	Collect(ctx context.Context, order, address string) error
}

// ErrNoAddress means that an order has no address.
var ErrNoAddress = errors.New("no address")

// Ship returns a handler that passes orders to the carrier.
func Ship(c Carrier) listener.Handler[Order] {
	return func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.Address == "" {
			return listener.Poison(ErrNoAddress) // no retry can succeed
		}
		if early := time.Until(m.Body.NotBefore); early > 0 {
			return listener.Snooze(early) // too early is not a failure
		}
		if err := c.Collect(ctx, m.Body.ID, m.Body.Address); err != nil {
			return fmt.Errorf("order %s: %w", m.Body.ID, err)
		}
		return nil
	}
}
