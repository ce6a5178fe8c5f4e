package emulator_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue/azurequeue"
)

// A client meets the bad days of the service on demand: the second put is
// refused, and of the third the answer is lost, though the message is there.
func ExampleFaults() {
	ctx := context.Background()
	rules, err := emulator.ParseFaults("put:503@#2, put:drop@#3")
	if err != nil {
		log.Fatal(err)
	}
	server := emulator.New(nil, &emulator.Options{Faults: &emulator.Faults{Rules: rules}})
	q, err := azurequeue.Open(server.ConnectionString(), "orders",
		&azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		log.Fatal(err)
	}
	if err := q.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for i := range 4 {
		_, err := q.Enqueue(ctx, fmt.Sprint("ship ", i+1), nil)
		fmt.Println("ship", i+1, "accepted:", err == nil)
	}
	messages, err := q.Peek(ctx, 32)
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range messages {
		fmt.Println(m.Text)
	}
	// Output:
	// ship 1 accepted: true
	// ship 2 accepted: false
	// ship 3 accepted: false
	// ship 4 accepted: true
	// ship 1
	// ship 3
	// ship 4
}

// A rule that is wrong is named, with what would be right.
func ExampleParseFaults() {
	_, err := emulator.ParseFaults("get:503@5%, put:404@5%")
	fmt.Println(err)
	// Output:
	// emulator: fault "put:404@5%": "404" is no kind of fault: use 503, 500, timeout (or 408), reset, drop, duplicate or delay=200ms
}
