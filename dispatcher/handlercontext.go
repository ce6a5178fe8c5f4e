package dispatcher

import "context"

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

// handlerContext is the context of a handler. It is a part of the delivery, so that to
// find the delivery costs no allocation.
type handlerContext struct {
	context.Context
	delivery describer
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
