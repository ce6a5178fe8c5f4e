package dispatcher

import (
	"context"
	"time"
)

// Reserve waits for free slots and takes up to a batch of them. It returns when MinFetch slots
// are free, or any after Linger, and 0 when ctx ended first. In an outage of the handlers it
// waits, then takes one slot for a probe. Every reserved slot must be passed to
// [Dispatcher.Dispatch] or [Dispatcher.Release]. Callers are served in the order of their calls.
func (d *Dispatcher) Reserve(ctx context.Context) int {
	if !d.slots.takeTurn(ctx) {
		return 0
	}
	defer d.slots.endTurn()
	for {
		if d.options.OnWait != nil && d.breaker.isOpen() {
			d.options.OnWait(false)
		}
		probe, ok := d.breaker.await(ctx)
		if !ok {
			return 0
		}
		if probe {
			n := d.slots.reserve(ctx, probeSlots, func() int { return probeSlots }, 0)
			if n > 0 {
				d.breaker.probe()
			}
			return n
		}
		n := d.slots.reserve(ctx, d.options.BatchSize, d.minFetch, d.linger())
		if n == 0 || !d.breaker.isOpen() {
			return n
		}
		d.slots.rest()
		d.slots.unreserve(n) // the failures that freed the slots opened the breaker
	}
}

// Release frees reserved slots for which no dequeue was sent. Unlike an empty batch in [Dispatcher.Dispatch]
// it says nothing about the queue. If one was for a probe in an outage, the next probe may follow at once.
func (d *Dispatcher) Release(reserved int) {
	d.slots.rest()
	d.slots.unreserve(reserved)
	d.breaker.unknown(time.Now())
}

// minFetch returns how many slots must be free before a dequeue is sent. A full batch shows that
// more messages wait in the queue: then the handlers are busy, and what counts is the price of a
// message. Otherwise whatever comes should be noticed soon.
func (d *Dispatcher) minFetch() int {
	if d.options.MinFetch != 0 {
		return d.options.MinFetch
	}
	slots := d.slots.capacity()
	if d.backlog.Load() {
		return min(max((slots+3)/6, 1), maxDefaultMinFetch) // rounded: 11 of 64, and 1 up to 8
	}
	return min(max(slots/10, 1), maxDefaultMinFetch)
}

// noteBacklog records whether a dequeue returned as many messages as it asked for. If not it leaves
// slots, and when they are freed a caller of Reserve looks again how many it needs.
func (d *Dispatcher) noteBacklog(full bool) { d.backlog.Store(full) }

// Backlog reports whether the last dequeue returned as many messages as it asked for.
func (d *Dispatcher) Backlog() bool { return d.backlog.Load() }

// maxDefaultLinger bounds the default of Linger. Handlers so slow that a fifth of their time is
// longer cost far more than their dequeues, and messages should not wait while slots are free.
const maxDefaultLinger = time.Second

// linger returns how long free slots wait for more. With slow handlers a fixed time would end
// before a tenth of them have returned, and batches would stay small.
func (d *Dispatcher) linger() time.Duration {
	if d.options.Linger != 0 {
		return d.options.Linger
	}
	return min(max(defaultLinger, d.visibility.handlingTime()/5), maxDefaultLinger)
}

// Open sets how many slots may be used, at most Concurrency. Handlers beyond the bound finish.
// When the bound is lowered, room for one batch beside the running handlers stays open, up to
// maxOpen slots, so that new work is still noticed.
func (d *Dispatcher) Open(slots, maxOpen int) { d.slots.setOpen(slots, maxOpen) }

// OpenOnce lets one call of [Dispatcher.Reserve] take up to this many slots beyond the bound of
// [Dispatcher.Open], within Concurrency.
func (d *Dispatcher) OpenOnce(slots int) { d.slots.openOnce(slots) }

// Resize changes Concurrency, which must be at least 1, with the default of MinFetch and the
// number of failures that count as an outage. Handlers beyond the new bound finish.
func (d *Dispatcher) Resize(concurrency int) {
	concurrency = max(concurrency, 1)
	d.slots.resize(concurrency)
	for _, b := range d.breakers() {
		b.resize(concurrency)
	}
}

// Saturated reports whether a caller of [Dispatcher.Reserve] waits because all slots that
// [Dispatcher.Open] allows are taken, while Concurrency would allow more.
func (d *Dispatcher) Saturated() bool { return d.slots.saturated() }

// Outage reports whether handlers have failed so often that the dispatcher lets only probes through.
func (d *Dispatcher) Outage() bool { return d.breaker.isOpen() }
