package producer

import (
	"context"
	"sync"
	"time"
)

// wakeInterval is how long the first message without an event waits for one while a SendAll runs.
const wakeInterval = time.Second

// collector collects the hints of one SendAll.
type collector struct {
	wakeups *wakeups
	dirty   chan struct{} // holds an element when there are hints

	mu    sync.Mutex
	hints hints // guarded by mu
}

func newCollector(w *wakeups) *collector {
	return &collector{wakeups: w, dirty: make(chan struct{}, 1)}
}

// add remembers the hints of one message. What becomes visible in the same second becomes one event.
func (c *collector) add(_ context.Context, h hints) {
	c.mu.Lock()
	c.hints.now += h.now
	c.hints.bytes += h.bytes
	if c.hints.later == nil && len(h.later) > 0 {
		c.hints.later = make(map[time.Time]int64)
	}
	for due, bytes := range h.later {
		c.hints.later[due.Add(time.Second-1).Truncate(time.Second)] += bytes
	}
	c.mu.Unlock()
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

// publish publishes what was collected.
func (c *collector) publish(ctx context.Context) {
	c.mu.Lock()
	h := c.hints
	c.hints = hints{}
	c.mu.Unlock()
	if h.now > 0 || len(h.later) > 0 {
		c.wakeups.wake(ctx, h)
	}
}

// run publishes once in an interval, until ended is closed: a sequence may be endless.
func (c *collector) run(ctx context.Context, ended <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.dirty:
		case <-ended:
			return
		}
		timer.Reset(wakeInterval)
		select {
		case <-timer.C:
			c.publish(ctx)
		case <-ended:
			return
		}
	}
}
