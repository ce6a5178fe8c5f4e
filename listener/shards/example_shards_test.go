package shards_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

type Order struct{ ID int }

// Three queues as one, while it gets busier: a fourth is added, to the listener first and then to the
// sender, and later one is removed, from the sender first.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		panic(err)
	}
	open := func(i int) queue.Queue {
		q := engine.Queue(queue.Name{Account: "shop", Queue: fmt.Sprintf("orders-%d", i)})
		if err := q.Create(ctx, nil); err != nil {
			panic(err)
		}
		return q
	}
	three := []queue.Queue{open(0), open(1), open(2)}
	orders, err := sharded.New(three, nil)
	if err != nil {
		panic(err)
	}
	p := producer.New(orders, &producer.Options[Order]{})

	var shipped sync.WaitGroup
	ship := func(context.Context, *listener.Message[Order]) error {
		shipped.Done()
		return nil
	}
	l, err := shards.New(three, ship, &shards.Options[Order]{Settle: 100 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()

	send := func(n int) {
		shipped.Add(n)
		for i := range n {
			if _, err := p.Send(ctx, Order{i}, nil); err != nil {
				panic(err)
			}
		}
	}
	send(30)

	more := open(3)
	if err := l.Add(more); err != nil { // somebody listens to it
		panic(err)
	}
	if err := orders.Add(more); err != nil { // from now on it gets orders
		panic(err)
	}
	send(40)

	gone := three[0].Name()
	if err := orders.Remove(ctx, gone); err != nil { // it gets no more of them
		panic(err)
	}
	if err := l.Remove(ctx, gone); err != nil { // it has been empty for a tenth of a second: nobody listens to it any more
		panic(err)
	}
	send(30)
	shipped.Wait()
	for _, s := range l.State().Shards {
		fmt.Println(s.Shard, s.Ready())
	}
	stop()
	fmt.Println(<-done, l.State().Total.Outcomes[listener.Deleted])
	// Output:
	// shop/orders-1 true
	// shop/orders-2 true
	// shop/orders-3 true
	// <nil> 100
}
