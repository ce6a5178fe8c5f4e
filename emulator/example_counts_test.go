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

// Three messages and the polls around them cost so many transactions: one line for each
// operation, and the total, which is the bill.
func ExampleCounts_String() {
	rules, err := emulator.ParseFaults("delete:503@#2")
	if err != nil {
		log.Fatal(err)
	}
	server, err := emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{Rules: rules}})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := azurequeue.Open(server.ConnectionString(), "orders", &azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for range 3 {
		if _, err := orders.Enqueue(ctx, "ship 42", nil); err != nil {
			log.Fatal(err)
		}
	}
	for range 3 {
		found, err := orders.Dequeue(ctx, 32, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		for _, m := range found {
			for orders.Delete(ctx, m.Lease) != nil { // repeat at once
			}
		}
	}
	fmt.Print(server.Counts())
	// Output:
	// operation                  requests  2xx  4xx  5xx  no response  faults  bytes in  bytes out
	// PutMessage                        3    3    0    0            0       0       306       1200
	// GetMessages                       3    3    0    0            0       0         0       1392
	// DeleteMessage                     4    3    0    1            0       1         0        254
	// CreateQueue                       1    1    0    0            0       0         0          0
	// transactions                     11   10    0    1            0       1       306       2846
	// messages got: 3; gets that found none: 2
	// faults: 503 1
	// 503, which the service does not bill: 1; over a quota: 0
}
