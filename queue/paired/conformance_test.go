package paired_test

import (
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/queuetest"
)

// a paired queue whose accounts work is a queue like any other.
func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			q := must(paired.New(must(localqueue.New(nil)).Queue(queue.Name{Account: "west", Queue: name}),
				must(localqueue.New(nil)).Queue(queue.Name{Account: "east", Queue: name}), nil))
			t.Cleanup(func() { _ = q.Close() })
			if err := q.Pair(t.Context()); err != nil {
				t.Fatal(err)
			}
			return q
		},
	})
}
