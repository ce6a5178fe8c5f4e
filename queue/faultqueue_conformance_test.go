package queue_test

import (
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

func TestConformanceWithoutFaults(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(_ *testing.T, name string) queue.Manager {
			return must(faultqueue.New(must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: name}), nil))
		},
	})
}
