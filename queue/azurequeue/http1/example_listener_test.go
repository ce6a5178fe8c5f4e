package http1_test

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/azurequeue/http1"
)

// A worker over the lean transport: one for the whole program, with as many connections as it
// runs handlers.
func ExampleNew() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
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
	transport, err := http1.New(&http1.Options{Connections: 64})
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
	if _, err := producer.New(q, &producer.Options[string]{Create: true}).Send(ctx, "order 7", nil); err != nil {
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[string]) error {
		fmt.Println("shipping", m.Body)
		stop()
		return nil
	}
	fmt.Println(listener.New(q, ship, &listener.Options[string]{Concurrency: 64}).Run(ctx))
	// Output:
	// shipping order 7
	// <nil>
}
