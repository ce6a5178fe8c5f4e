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
	hints collected // guarded by mu
}

func newCollector(w *wakeups) *collector {
	return &collector{wakeups: w, dirty: make(chan struct{}, 1)}
}

func (c *collector) add(_ context.Context, all []hints) {
	c.mu.Lock()
	c.hints.add(all)
	c.mu.Unlock()
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

func (c *collector) publish(ctx context.Context) {
	c.mu.Lock()
	all := c.hints.take()
	c.mu.Unlock()
	if len(all) > 0 {
		c.wakeups.wake(ctx, all)
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
