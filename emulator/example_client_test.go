package emulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"

	"github.com/millrace/millrace/emulator"
)

// Microsoft's own client talks to the emulator in process, without a socket:
// the server is the transport.
func ExampleServer_RoundTrip() {
	ctx := context.Background()
	server, err := emulator.New(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	client, err := azqueue.NewQueueClientFromConnectionString(server.ConnectionString(), "orders",
		&azqueue.ClientOptions{ClientOptions: azcore.ClientOptions{Transport: &http.Client{Transport: server}}})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := client.EnqueueMessage(ctx, "ship 42", nil); err != nil {
		log.Fatal(err)
	}
	for range 2 { // the second finds it hidden
		got, err := client.DequeueMessage(ctx, nil)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range got.Messages {
			fmt.Println(*m.MessageText)
		}
	}
	counts := server.Counts()
	fmt.Println(counts.Requests(), "transactions,", counts.EmptyGets, "empty")
	// Output:
	// ship 42
	// 4 transactions, 1 empty
}

// On a socket the emulator serves any client in any language.
func ExampleServer_Start() {
	server, err := emulator.New(nil, nil)
	if err != nil {
		log.Fatal(err)
	}
	endpoint, err := server.Start("127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	client, err := azqueue.NewServiceClientFromConnectionString(endpoint.ConnectionString(), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.CreateQueue(context.Background(), "orders", nil); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println("stopped:", endpoint.Shutdown(ctx) == nil)
	// Output:
	// stopped: true
}
