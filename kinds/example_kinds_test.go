package kinds_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// One queue has orders and mails. The name and the type of each are said once, for its senders and its
// handler.
func Example() {
	type Order struct{ Number int }
	type Mail struct{ To string }
	orders := kinds.Kind[Order]{Name: "order"}
	mails := kinds.Kind[Mail]{Name: "mail"}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "jobs"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	_, err = orders.Producer(q, nil).Send(ctx, Order{4711}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	bill := func(ctx context.Context, m *listener.Message[Order]) error {
		fmt.Println("bill order", m.Body.Number)
		_, err := mails.Producer(q, nil).Send(ctx, Mail{"ann@example.org"}, nil)
		return err
	}
	deliver := func(_ context.Context, m *listener.Message[Mail]) error {
		fmt.Println("mail to", m.Body.To, "attempt", m.Attempt, "of", m.MaxAttempts)
		stop()
		return nil
	}
	l, err := listener.NewKinds(q, []listener.Kind{
		orders.Handle(bill, nil),
		mails.Handle(deliver, &kinds.Options{Timeout: 10 * time.Second, MaxAttempts: 20}),
	}, &listener.Options[any]{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// bill order 4711
	// mail to ann@example.org attempt 1 of 20
}
