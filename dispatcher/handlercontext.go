package dispatcher

import (
	"context"
	"errors"
	"time"
)

// DeliveryFrom returns the delivery whose handler runs under ctx, for code that a handler calls
// without its message, such as a logger. It returns false outside of a handler, and for the
// context of a [BatchHandler], which has several deliveries.
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	switch of := ctx.Value(deliveryKey{}).(type) {
	case *delivery:
		return of.described(), true
	case *itemContext:
		return of.delivery.describedItem(of.item), true
	}
	return Delivery{}, false
}

// deliveryKey is the key of a delivery in its handler's context.
type deliveryKey struct{}

// handlerContext is the context of a handler. It is part of the delivery, which saves an
// allocation, and its deadline needs no timer because the lease manager enforces it.
type handlerContext struct {
	context.Context
	delivery *delivery
	deadline time.Time // zero for none
}

// Deadline returns the end of the handler's time-out.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err returns context.DeadlineExceeded after the time-out. Contexts derived from this one
// return context.Canceled; context.Cause tells why.
func (c *handlerContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Value returns the delivery for its key.
func (c *handlerContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.delivery
	}
	return c.Context.Value(key)
}

// withoutDelivery is a context whose delivery is hidden.
type withoutDelivery struct{ context.Context }

// Value returns no delivery.
func (c withoutDelivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return nil
	}
	return c.Context.Value(key)
}
