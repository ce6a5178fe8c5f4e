package sharded_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/sharded"
)

// Four queues in two accounts take jobs as one. The producer is that of a single queue.
func Example() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var shards []queue.Queue
	for _, name := range []queue.Name{{Account: "east", Queue: "orders-0"}, {Account: "east", Queue: "orders-1"}, {Account: "west", Queue: "orders-2"}, {Account: "west", Queue: "orders-3"}} {
		shards = append(shards, engine.Queue(name)) // in production azurequeue.Open
	}
	orders, err := sharded.New(shards, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := producer.New(orders, &producer.Options[string]{Create: true})
	for i := range 100 {
		if _, err := p.Send(ctx, fmt.Sprint("order ", i), nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, d := range orders.Depths(ctx) {
		fmt.Println(d.Queue, d.Depth, d.Err)
	}
	all, err := orders.Properties(ctx)
	fmt.Println(orders.Name(), all.Depth, err)
	// Output:
	// east/orders-0 25 <nil>
	// east/orders-1 25 <nil>
	// west/orders-2 25 <nil>
	// west/orders-3 25 <nil>
	// orders 100 <nil>
}

// The jobs of a customer stay together. A fifth shard takes about a fifth of the customers, and moves no
// other.
func ExampleQueue_Add() {
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	shard := func(i int) queue.Queue {
		return engine.Queue(queue.Name{Account: "shop", Queue: fmt.Sprint("orders-", i)})
	}
	orders, err := sharded.New([]queue.Queue{shard(0), shard(1), shard(2), shard(3)}, &sharded.Options{Place: sharded.ByKey})
	if err != nil {
		fmt.Println(err)
		return
	}
	home := func(customer int) queue.Name {
		return orders.ShardsOf(fmt.Sprint("customer-", customer))[0].Name()
	}
	var before [1000]queue.Name
	for i := range before {
		before[i] = home(i)
	}
	if err := orders.Add(shard(4)); err != nil {
		fmt.Println(err)
		return
	}
	moved, elsewhere := 0, 0
	for i := range before {
		if now := home(i); now != before[i] {
			moved++
			if now != shard(4).Name() {
				elsewhere++
			}
		}
	}
	fmt.Println(moved, "of 1000 customers moved,", elsewhere, "of them not to the new shard")
	// Output: 205 of 1000 customers moved, 0 of them not to the new shard
}

// Each tenant has two of eight shards. A tenant that floods the queue slows only those that share one of
// its two.
func ExampleOptions_tenants() {
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var shards []queue.Queue
	for i := range 8 {
		shards = append(shards, engine.Queue(queue.Name{Account: "shop", Queue: fmt.Sprint("orders-", i)}))
	}
	orders, err := sharded.New(shards, &sharded.Options{PerTenant: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tenant := range []string{"acme", "globex", "initech"} {
		fmt.Print(tenant, ":")
		for _, s := range orders.ShardsOf(tenant) {
			fmt.Print(" ", s.Name().Queue)
		}
		fmt.Println()
	}
	// Output:
	// acme: orders-2 orders-7
	// globex: orders-5 orders-3
	// initech: orders-1 orders-5
}

// A meter counts the requests of one queue that is not enough any more. After three minutes in a row with
// 503 the monitor says how many shards there should be.
func ExampleMonitor() {
	ctx := context.Background()
	m := new(metered.Meter)
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := m.Wrap(busyQueue{engine.Queue(queue.Name{Account: "shop", Queue: "orders"}), new(int)})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	monitor, err := sharded.NewMonitor(&sharded.MonitorOptions{Fleet: 200}) // as many processes send
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	for range 4 { // in a program a time.Ticker
		all, sends := m.Counts().Total(), m.Counts().Operation(metered.Enqueue)
		advice, regular := monitor.Observe(now, sharded.Counts{
			Requests: all.Requests, Throttled: all.Throttled, Messages: sends.Requests - sends.Repeated,
		})
		fmt.Println(now.Format("15:04"), regular)
		if regular {
			fmt.Println(advice)
		}
		for range 600 {
			_, _ = q.Enqueue(ctx, "an order", nil) // a producer would repeat what is refused
		}
		now = now.Add(time.Minute)
	}
	// Output:
	// 10:00 false
	// 10:01 false
	// 10:02 false
	// 10:03 true
	// 5.0 % of the requests are throttled: 2000 messages/s call for 3 shards
}

// busyQueue refuses every twentieth message.
type busyQueue struct {
	queue.Queue
	sent *int
}

func (b busyQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if *b.sent++; *b.sent%20 == 0 {
		return queue.Message{}, &queue.Error{Op: "enqueue", Queue: b.Name(), Kind: queue.ErrThrottled, Status: 503}
	}
	return b.Queue.Enqueue(ctx, text, o)
}
