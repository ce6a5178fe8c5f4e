package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

// counted is a queue of our own: a wrapper that counts dequeues.
type counted struct {
	queue.Manager
	dequeues *atomic.Int64
}

func (q counted) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.dequeues.Add(1)
	return q.Manager.Dequeue(ctx, n, visibility)
}

// Sibling keeps the wrapper, as the port asks.
func (q counted) Sibling(suffix string) queue.Queue {
	return counted{Manager: q.Manager.Sibling(suffix).(queue.Manager), dequeues: q.dequeues}
}

// conformance is TestConformance in the package of the queue.
func conformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true, // the queue is in this process, so hours pass at once
		Open: func(t *testing.T, name string) queue.Manager {
			engine, err := localqueue.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			q := engine.Queue(queue.Name{Account: "acme", Queue: name})
			return counted{Manager: q, dequeues: new(atomic.Int64)}
		},
	})
}

// A test of an own queue is one call.
func Example_conformance() {
	fmt.Println("conforms:", suitetest.Passes(conformance))
	// Output: conforms: true
}
