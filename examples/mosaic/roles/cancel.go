package roles

import "context"

// Cancel ends the request without a mosaic, and deletes its blobs. Messages of it that are left are discarded by their
// handlers. It may be repeated. A request that has ended with a mosaic keeps its end, and loses the mosaic.
func (o *Order) Cancel(ctx context.Context, reason string) error {
	b := o.broker
	e, err := b.jobs.finish(ctx, o.ID, end{Failed: reason})
	if err != nil {
		return err
	}
	o.finish(&FailedError{Reason: reason})
	if e.Output != "" { // kept for this client, which does not want it any more
		if err := b.jobs.delivered(ctx, o.ID); err != nil {
			return err
		}
	}
	return b.jobs.sweep(ctx, o.ID, false)
}

// Forget makes the Broker forget an order that has ended, or that nobody waits for any more. What still comes for it is
// handled as that of another program.
func (o *Order) Forget() { o.broker.forget(o) }
