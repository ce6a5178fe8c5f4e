package dispatcher

import (
	"context"
	"errors"
	"time"
)

// DeliveryFrom returns the delivery whose handler runs under ctx, for code that a handler
// calls and that has no message, such as a logger. It is false for the context of no
// handler, and for that of a [BatchHandler], which has many deliveries.
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(describer)
	if !ok {
		return Delivery{}, false
	}
	return d.described(), true
}

// deliveryKey is the key of a delivery in its handler's context.
type deliveryKey struct{}

type describer interface{ described() Delivery }

// handlerContext is the context of a handler. It is a part of the delivery, so that it
// costs no allocation, and its deadline no timer: the lease keeper ends it in time.
type handlerContext struct {
	context.Context
	delivery describer
	deadline time.Time // zero for none
}

// Deadline tells when the handler's time is up.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err tells a deadline that has passed from other ends. A context that is made from this one
// says that it was cancelled, and context.Cause of it why.
func (c *handlerContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Value finds the delivery.
func (c *handlerContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.delivery
	}
	return c.Context.Value(key)
}

// withoutDelivery hides the delivery of a context.
type withoutDelivery struct{ context.Context }

// Value finds no delivery.
func (c withoutDelivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return nil
	}
	return c.Context.Value(key)
}
