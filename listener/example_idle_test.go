package listener_test

import (
	"context"
	"fmt"
	"sync"
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
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("shipping", m.Body.ID)
		stop()
		return nil
	}
	empty := make(chan struct{})
	noticed := sync.OnceFunc(func() { close(empty) })
	l := listener.New(q, ship, &listener.Options[Order]{
		Fetch:    listener.FetchOptions{Idle: listener.Idle{Min: time.Hour, Max: time.Hour}},
		Observer: listener.Observer{Polled: func(listener.Poll) { noticed() }},
	})
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	<-empty
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the shop opens")
	if err := l.Configure(listener.Settings{Idle: listener.Idle{Min: time.Millisecond, Max: time.Millisecond}}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-ended)
	// Output:
	// the shop opens
	// shipping 7
	// <nil>
}
