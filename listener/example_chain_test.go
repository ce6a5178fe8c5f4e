package listener_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// complete is middleware that knows the job: it refuses orders that no attempt would help.
func complete(next listener.Handler[Order]) listener.Handler[Order] {
	return func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.ID == "" {
			return listener.Discard(errors.New("no id"))
		}
		return next(ctx, m)
	}
}

// logged is middleware for any job.
func logged[T any](next listener.Handler[T]) listener.Handler[T] {
	return func(ctx context.Context, m *listener.Message[T]) error {
		err := next(ctx, m)
		fmt.Println(m.Body, err)
		return err
	}
}

// The first middleware is the outermost: it sees what the second refuses.
func ExampleChain() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	p := producer.New(q, &producer.Options[Order]{Create: true})
	for _, id := range []string{"", "7"} {
		if _, err := p.Send(ctx, Order{ID: id}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	ship := func(context.Context, *listener.Message[Order]) error {
		stop()
		return nil
	}
	l := listener.New(q, listener.Chain(ship, logged, complete), &listener.Options[Order]{Concurrency: 1})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {} no id
	// {7} <nil>
}
