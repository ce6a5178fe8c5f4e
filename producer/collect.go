package producer

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
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
	waiting.Signal(c.dirty, struct{}{})
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
	for {
		select {
		case <-c.dirty:
		case <-ended:
			return
		}
		if !waiting.For(wakeInterval, ended) {
			return
		}
		c.publish(ctx)
	}
}
