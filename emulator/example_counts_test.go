package emulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
)

// The table says what a bill would: here that most polls found nothing.
func ExampleCounts_String() {
	ctx := context.Background()
	server := emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{
		Rules: []emulator.Fault{{Operation: emulator.GetMessages, Kind: emulator.FaultBusy, Every: 4}},
	}})
	q, err := azurequeue.Open(server.ConnectionString(), "orders",
		&azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		log.Fatal(err)
	}
	if err := q.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err := q.Enqueue(ctx, "ship", nil); err != nil {
			log.Fatal(err)
		}
	}
	for range 12 {
		_, _ = q.Dequeue(ctx, 2, time.Minute) // every fourth is refused
	}
	fmt.Print(server.Counts())
	// Output:
	// 12 GetMessages
	//  8   of them empty
	//  2 PutMessage
	//  1 CreateQueue
	// 15 transactions
	//  2 messages handed out
	// 12 answers 2xx
	//  3 answers 5xx
	//  3 faults 503
}
