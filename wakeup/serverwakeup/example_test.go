package serverwakeup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup/serverwakeup"
)

// A process hears of the message that another one sends.
func Example() {
	server, err := emulator.New(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoint, err := server.Start("") // or millrace serve
	if err != nil {
		fmt.Println(err)
		return
	}
	defer endpoint.Close()
	location := endpoint.ConnectionString()
	orders, err := azurequeue.Open(location, "orders", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if err := orders.Create(context.Background(), nil); err != nil {
		fmt.Println(err)
		return
	}

	source, err := serverwakeup.Open(location, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Close()
	listening, events := make(chan bool, 1), make(chan string, 1)
	subscription, err := source.Subscribe(orders.Name(), func(q queue.Name, bytes int64, _ time.Time) {
		events <- fmt.Sprintf("%s with %d bytes", q.Queue, bytes)
	}, func(on bool) { listening <- on })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscription.Close()
	fmt.Println("listening:", <-listening)

	if _, err := orders.Enqueue(context.Background(), "hello", nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("wake-up for", <-events)
	// Output:
	// listening: true
	// wake-up for orders with 5 bytes
}
