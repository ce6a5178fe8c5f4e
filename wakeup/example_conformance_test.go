package wakeup_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
	"github.com/millrace/millrace/wakeup/wakeuptest"
)

// counted is a publisher of our own: a wrapper that counts events.
type counted struct {
	wakeup.Publisher
	events atomic.Int64
}

func (c *counted) Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error {
	c.events.Add(1)
	return c.Publisher.Publish(ctx, q, bytes, due)
}

// conformance is TestConformance in the package of the transport.
func conformance(t *testing.T) {
	wakeuptest.Run(t, wakeuptest.Harness{
		Bubble: true, // the transport is in this process
		Open: func(*testing.T, int) []wakeuptest.Process {
			bus := new(wakeup.Bus)
			return []wakeuptest.Process{{Source: bus, Publisher: &counted{Publisher: bus}}}
		},
	})
}

// A test of an own transport is one call.
func Example_conformance() {
	fmt.Println("conforms:", suitetest.Passes(conformance))
	// Output: conforms: true
}
