package millrace_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// metrics is a Runner of our own: it works until its context ends.
type metrics struct{}

func (metrics) Run(ctx context.Context) error {
	<-ctx.Done()
	fmt.Println("the last metrics are sent")
	return nil
}

func (metrics) Halt() {} // it never takes long

// Two listeners drain at the same time, and the metrics after both of them.
func ExampleTogether() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, letters := engine.Queue(queue.Name{Queue: "orders"}), engine.Queue(queue.Name{Queue: "letters"})
	if _, err := producer.New(orders, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		stop() // as a signal does
		fmt.Println("shipping", m.Body.ID)
		return nil
	}
	write := func(context.Context, *listener.Message[string]) error { return nil }
	err = millrace.RunOrdered(ctx, metrics{}, millrace.Together(
		listener.New(orders, ship, &listener.Options[Order]{Logger: silent}),
		listener.New(letters, write, &listener.Options[string]{Create: true, Logger: silent})))
	fmt.Println(err)
	// Output:
	// shipping 7
	// the last metrics are sent
	// <nil>
}
