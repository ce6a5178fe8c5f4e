package listener_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A program that learns of work by a way of its own, such as a request that it serves, says so.
func ExampleListener_Wake() {
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
	polled := make(chan struct{}, 1000)
	l := listener.New(q, ship, &listener.Options[Order]{
		Fetch:    listener.FetchOptions{Idle: listener.Idle{Min: time.Hour, Max: time.Hour}},
		Observer: listener.Observer{Polled: func(listener.Poll) { polled <- struct{}{} }},
		Logger:   slog.New(slog.DiscardHandler),
	})
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	<-polled // the next poll is in an hour
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	l.Wake()
	fmt.Println(<-ended)
	// Output:
	// shipping 7
	// <nil>
}
