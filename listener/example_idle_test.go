package listener_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// With these waits an idle worker sends one request an hour, and an order may wait for so long.
// While the shop is open it polls each millisecond.
func ExampleIdle() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	q := localqueue.New(nil).Queue(queue.Name{Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("shipping", m.Body.ID)
		stop()
		return nil
	}
	polled := make(chan listener.Poll, 100)
	l := listener.New(q, ship, &listener.Options[Order]{
		Idle: listener.Idle{Min: time.Hour, Max: time.Hour},
		Observer: listener.Observer{Polled: func(p listener.Poll) { polled <- p }},
	})
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	fmt.Println("polled, found", (<-polled).Got)
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println("the shop opens:", l.Configure(listener.Settings{
		Idle: listener.Idle{Min: time.Millisecond, Max: time.Millisecond},
	}))
	fmt.Println(<-ended)
	// Output:
	// polled, found 0
	// the shop opens: <nil>
	// shipping 7
	// <nil>
}
