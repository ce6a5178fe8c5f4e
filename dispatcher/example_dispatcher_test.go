package dispatcher_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A program that dequeues by itself, which a listener does otherwise: slots first, then as many
// messages, then a drain.
func ExampleDispatcher() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[string]{Create: true}).Send(ctx, "order 7", nil); err != nil {
		log.Fatal(err)
	}
	ship := func(_ context.Context, m *dispatcher.Message[string]) error {
		fmt.Println("shipping", m.Body)
		return nil
	}
	d, err := dispatcher.New(q, dispatcher.Jobs[string]{Handler: ship}, &dispatcher.Options{Concurrency: 8})
	if err != nil {
		log.Fatal(err)
	}
	if err := d.Start(ctx); err != nil {
		log.Fatal(err)
	}
	slots, asked, visibility := d.Reserve(ctx), time.Now(), d.Visibility()
	batch, err := q.Dequeue(ctx, slots, visibility)
	if err != nil {
		log.Print(err) // an empty batch frees the slots
	}
	d.Dispatch(batch, slots, asked, visibility)
	fmt.Println(d.Drain(ctx), "deleted:", d.Outcomes()[dispatcher.Deleted])
	// Output:
	// shipping order 7
	// <nil> deleted: 1
}
