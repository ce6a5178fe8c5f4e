package listener_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// State is what probes and dashboards read.
func ExampleState() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	var l *listener.Listener[Order]
	show := func() {
		s := l.State()
		fmt.Printf("%q ready: %v healthy: %v handlers: %d visibility: %v\n", s.Phase, s.Ready(), s.Healthy(), s.Running, s.Visibility)
	}
	l = listener.New(q, func(context.Context, *listener.Message[Order]) error {
		show()
		stop()
		return nil
	}, &listener.Options[Order]{Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(2 * time.Minute)}})
	show()
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	show()
	// Output:
	// "" ready: false healthy: true handlers: 0 visibility: 0s
	// "running" ready: true healthy: true handlers: 1 visibility: 2m0s
	// "stopped" ready: false healthy: false handlers: 0 visibility: 2m0s
}
