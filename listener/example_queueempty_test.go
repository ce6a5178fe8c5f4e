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

// QueueEmpty decides what follows an empty poll. This worker is started every night and ends when
// nothing is left. It has one loop, because another could receive messages while it stops, which
// would be given back.
func ExampleOptions_queueEmpty() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	p := producer.New(q, &producer.Options[Order]{Create: true})
	for range 100 {
		if _, err := p.Send(ctx, Order{ID: "7"}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	ship := func(context.Context, *listener.Message[Order]) error { return nil }
	l := listener.New(q, ship, &listener.Options[Order]{
		Fetch: listener.FetchOptions{
			Loops: listener.Loops{Max: 1},
			QueueEmpty: func(int) (wait time.Duration, end bool) {
				stop()
				return time.Second, false
			},
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("succeeded:", l.State().Outcomes[listener.Deleted])
	// Output: succeeded: 100
}
