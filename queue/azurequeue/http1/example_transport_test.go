package http1_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// The transport takes the place of net/http's under a queue. Here the service is an emulator
// on a socket of this machine.
func ExampleTransport() {
	ctx := context.Background()
	server, err := emulator.New(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoint, err := server.Start("")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer endpoint.Close()
	transport, err := http1.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer transport.Close()
	q, err := azurequeue.Open(endpoint.ConnectionString(), "orders", &azurequeue.Options{Transport: transport})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(q.Create(ctx, nil))
	if _, err := q.Enqueue(ctx, "order 7", nil); err != nil {
		fmt.Println(err)
	}
	batch, err := q.Peek(ctx, 1)
	if err != nil || len(batch) != 1 {
		fmt.Println(batch, err)
		return
	}
	fmt.Println(batch[0].Text)
	// Output:
	// <nil>
	// order 7
}
