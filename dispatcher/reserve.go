package dispatcher

import (
	"context"
	"time"
)

// Reserve waits for free slots and takes up to a batch of them: it returns when
// MinFetch are free, or any after Linger, and 0 when ctx ended first. While handlers
// fail one after the other it holds back, and then takes one slot for a message that
// shows whether they still do. Every reserved slot must be handed to
// [Dispatcher.Dispatch]. Callers take turns, in the order in which they came.
func (d *Dispatcher[T]) Reserve(ctx context.Context) int {
	if !d.slots.takeTurn(ctx) {
		return 0
	}
	defer d.slots.endTurn()
	for {
		probe, ok := d.breaker.await(ctx)
		if !ok {
			return 0
		}
		if probe {
			n := d.slots.reserve(ctx, probeSlots, probeSlots, 0)
			if n > 0 {
				d.breaker.probe()
			}
			return n
		}
		n := d.slots.reserve(ctx, d.options.BatchSize, d.minFetch(), d.linger())
		if n == 0 || !d.breaker.isOpen() {
			return n
		}
		d.slots.unreserve(n) // what freed the slots were the failures that opened it
	}
}

// minFetch is how many slots must be free before a dequeue is worth it.
func (d *Dispatcher[T]) minFetch() int {
	if d.options.MinFetch != 0 {
		return d.options.MinFetch
	}
	return min(max(d.slots.capacity()/10, 1), maxDefaultMinFetch)
}

// mostLinger bounds the default of Linger. Handlers that take so long that a fifth of it is
// more cost far more than their dequeues, and what waits meanwhile waits beside free slots.
const maxDefaultLinger = time.Second

// linger is how long free slots wait for more. With slow handlers a fixed time would
// end before a tenth of them have returned, and batches would stay small.
func (d *Dispatcher[T]) linger() time.Duration {
	if d.options.Linger != 0 {
		return d.options.Linger
	}
	return min(max(defaultLinger, d.visibility.handlingTime()/5), maxDefaultLinger)
}

// Open bounds how many slots may be used, at most Concurrency. Handlers that run beyond the
// bound finish. Of the slots that were open before one batch more than handlers use stays open
// while they run, up to most, so that new work is heard of.
func (d *Dispatcher[T]) Open(slots, maxOpen int) { d.slots.setOpen(slots, maxOpen) }

// OpenOnce lets one call of [Dispatcher.Reserve] take up to so many slots beyond the bound of
// [Dispatcher.Open], within Concurrency.
func (d *Dispatcher[T]) OpenOnce(slots int) { d.slots.openOnce(slots) }

// Resize changes Concurrency, which must be at least 1, and with it MinFetch if that
// has its default, and how many failures in a row are an outage. Handlers that run beyond
// it finish.
func (d *Dispatcher[T]) Resize(concurrency int) {
	concurrency = max(concurrency, 1)
	d.slots.resize(concurrency)
	d.breaker.resize(concurrency)
}

// Saturated tells whether a caller of [Dispatcher.Reserve] waits because every slot that
// [Dispatcher.Open] allows is taken, while Concurrency allows more.
func (d *Dispatcher[T]) Saturated() bool { return d.slots.saturated() }
