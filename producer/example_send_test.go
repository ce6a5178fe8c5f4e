package producer_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func ExampleProducer_Send() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	type Order struct{ ID string }
	if _, err := producer.New[Order](q, nil).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := q.Peek(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, body, _ := strings.Cut(batch[0].Text, "\n") // behind the line for workers
	fmt.Println(body)
	// Output: {"ID":"7"}
}
