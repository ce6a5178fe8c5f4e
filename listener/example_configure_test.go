package listener_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Settings change while a listener runs, such as when a configuration file does. Here the first
// order has the only slot until there is a second one.
func ExampleListener_Configure() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	p := producer.New(q, &producer.Options[Order]{Create: true})
	for _, id := range []string{"7", "8"} {
		if _, err := p.Send(ctx, Order{ID: id}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	started, finish := make(chan string), make(chan struct{})
	l := listener.New(q, func(_ context.Context, m *listener.Message[Order]) error {
		started <- m.Body.ID
		<-finish
		return nil
	}, &listener.Options[Order]{Concurrency: 1})
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	fmt.Println(<-started, "runs")
	fmt.Println(l.Configure(listener.Settings{Concurrency: 2}))
	fmt.Println(<-started, "runs beside it")
	close(finish)
	stop()
	fmt.Println(<-ended)
	// Output:
	// 7 runs
	// <nil>
	// 8 runs beside it
	// <nil>
}
