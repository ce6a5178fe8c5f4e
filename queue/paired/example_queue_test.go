package paired_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// A producer sends through the loss of its primary account.
func ExampleQueue() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	west := engine.Queue(queue.Name{Account: "west", Queue: "orders"})
	east := engine.Queue(queue.Name{Account: "east", Queue: "orders"})
	if err := west.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	send := func(primary queue.Queue, job string) {
		orders, err := paired.New(primary, east, &paired.Options{
			Backlogs:         1,  // enough for an example; leave it out to have ten
			FailoverInterval: -1, // at once; leave it out to tolerate failures for ten seconds
			OnFailover:       func(o paired.Outage) { fmt.Println("sends leave", o.Queue) },
			Logger:           slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer orders.Close()
		if err := orders.Pair(ctx); err != nil {
			fmt.Println(err)
			return
		}
		sent, err := producer.New[string](orders, nil).Send(ctx, job, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		backlog, err := orders.Backlog(ctx)
		fmt.Printf("%s is in %v, the queue is %v, %d in the backlog, %v\n", job, sent.Queue, orders.State().Status, backlog.Depth, err)
	}
	send(west, "a book")
	faulty, err := faultqueue.New(west, &faultqueue.Options{
		Every:   faultqueue.Rates{Unavailable: 1}, // the account is down
		Latency: faultqueue.Range{Min: time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	send(faulty, "a lamp")
	// Output:
	// a book is in west/orders, the queue is healthy, 0 in the backlog, <nil>
	// sends leave west/orders
	// a lamp is in east/orders-backlog-00, the queue is failed over, 1 in the backlog, <nil>
}
