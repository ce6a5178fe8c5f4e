package poison_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Two attempts instead of five, and one poison queue for the whole program.
func ExamplePolicy() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, rejects := engine.Queue(queue.Name{Queue: "orders"}), engine.Queue(queue.Name{Queue: "rejects"})
	if _, err := producer.New(orders, &producer.Options[string]{Create: true}).Send(ctx, "order 7", nil); err != nil {
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[string]) error {
		if m.Last() {
			stop()
		}
		return errors.New("no van")
	}
	l := listener.New(orders, ship, &listener.Options[string]{
		RetryDelay: func(int, error) time.Duration { return 0 },
		Poison:     poison.Policy{MaxAttempts: 2, Queue: rejects},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	copies, err := rejects.Peek(context.Background(), 1)
	if err != nil || len(copies) != 1 {
		fmt.Println(copies, err)
		return
	}
	r, err := poison.ParseRecord(copies[0].Text)
	fmt.Println(r.Queue, r.Attempts, r.Reason, r.Error, err)
	// Output: orders 2 attempts no van <nil>
}
