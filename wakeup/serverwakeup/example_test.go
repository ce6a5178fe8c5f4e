package serverwakeup_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/wakeup"
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
	listening, events := make(chan bool, 1), make(chan wakeup.Event, 1)
	subscription, err := source.Subscribe(orders.Name(), wakeup.Subscriber{
		Listening: func(on bool) { listening <- on },
		Event:     func(e wakeup.Event) { events <- e },
	})
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
	e := <-events
	fmt.Println("wake-up for", e.Queue.Queue, "with", e.Bytes, "bytes")
	// Output:
	// listening: true
	// wake-up for orders with 5 bytes
}
