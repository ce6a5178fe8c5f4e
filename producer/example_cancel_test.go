package producer_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A reminder is sent with a delay, and cancelled when it is needed no more.
func ExampleProducer_Cancel() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "reminders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	type Reminder struct{ Invoice string }
	reminders := producer.New[Reminder](q, nil)
	sent, err := reminders.Send(ctx, Reminder{"2026-7"}, &producer.SendOptions{Delay: 72 * time.Hour, Key: "customer 12"})
	if err != nil {
		fmt.Println(err)
		return
	}

	// The invoice is paid. A program that was restarted since needs the id and the receipt only.
	kept := producer.Sent{Lease: queue.Lease{ID: sent.ID, Receipt: sent.Receipt}}
	fmt.Println(reminders.Cancel(ctx, kept))

	err = reminders.Cancel(ctx, kept)
	fmt.Println("too late:", errors.Is(err, queue.ErrLeaseLost))
	// Output:
	// <nil>
	// too late: true
}
