package azurequeue_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
)

// Against Azure the location is a connection string or
// https://ACCOUNT.queue.core.windows.net, and there are no options. Here the
// emulator responds in process.
func ExampleOpen() {
	ctx := context.Background()
	server, err := emulator.New(nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, err := azurequeue.Open(server.ConnectionString(), "orders", &azurequeue.Options{
		Transport: &http.Client{Transport: server},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer orders.Close()
	if err := orders.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := orders.Enqueue(ctx, `{"id":"o-1"}`, nil); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := orders.Dequeue(ctx, 32, 30*time.Second)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range batch {
		fmt.Println(m.Text, "delivery", m.DequeueCount)
		fmt.Println(orders.Delete(ctx, m.Lease))
	}
	// Output:
	// {"id":"o-1"} delivery 1
	// <nil>
}

func ExampleOpen_mistake() {
	_, err := azurequeue.Open("https://acct.blob.core.windows.net", "orders", nil)
	fmt.Println(err)
	_, err = azurequeue.Open("UseDevelopmentStorage=true", "Orders", nil)
	fmt.Println(err)
	// Output:
	// open on orders: invalid argument: the location is the account's blob address; use its queue address, https://ACCOUNT.queue.core.windows.net
	// open on devstoreaccount1/Orders: invalid argument: queue name "Orders": only lower-case letters, digits and single hyphens are allowed
}
