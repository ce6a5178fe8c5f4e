package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// The service is busy at first, and the response to the second put is lost. The
// log shows the faults.
func ExampleParseFaults() {
	if _, err := emulator.ParseFaults("put:503@5"); err != nil {
		fmt.Println(err)
	}
	rules, err := emulator.ParseFaults("CreateQueue:503@#1 put:drop@#2")
	if err != nil {
		log.Fatal(err)
	}
	server, err := emulator.New(nil, &emulator.Options{
		Faults: &emulator.Faults{Rules: rules},
		Log: slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, slog.MessageKey, "account", "queue", "took", "id":
				return slog.Attr{} // for the example
			}
			return a
		}})),
	})
	if err != nil {
		log.Fatal(err)
	}
	orders, err := azurequeue.Open(server.ConnectionString(), "orders", &azurequeue.Options{Transport: &http.Client{Transport: server}})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	fmt.Println("throttled:", errors.Is(orders.Create(ctx, nil), queue.ErrThrottled))
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		if _, err = orders.Enqueue(ctx, "ship 42", nil); err != nil {
			fmt.Println("outcome unknown:", errors.Is(err, queue.ErrOutcomeUnknown), errors.Is(err, io.EOF))
		}
	}
	found, err := orders.Peek(ctx, 32)
	fmt.Println(len(found), "messages", err)
	// Output:
	// emulator: fault "put:503@5": "5" does not say when: write 5%, 1/100 or #3,7
	// level=WARN operation=CreateQueue status=503 code=ServerBusy fault=503
	// throttled: true
	// level=INFO operation=CreateQueue status=201
	// level=INFO operation=PutMessage status=201
	// level=WARN operation=PutMessage fault=drop
	// outcome unknown: true true
	// level=INFO operation=PeekMessages status=200
	// 2 messages <nil>
}

// A queue accepts two messages a second. After that burst the service is busy.
func ExampleParseQuotas() {
	quotas, err := emulator.ParseQuotas("messages=2")
	if err != nil {
		log.Fatal(err)
	}
	server, err := emulator.New(nil, &emulator.Options{Quotas: quotas})
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
		_, err := orders.Enqueue(ctx, "ship 42", nil)
		fmt.Println(errors.Is(err, queue.ErrThrottled))
	}
	// Output:
	// false
	// false
	// true
}

// An outage begins and ends while clients are connected.
func ExampleServer_SetFaults() {
	server, err := emulator.New(nil, nil)
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
	for _, text := range []string{"*:503", "*:403", ""} {
		rules, err := emulator.ParseFaults(text)
		if err != nil {
			log.Fatal(err)
		}
		if err := server.SetFaults(&emulator.Faults{Rules: rules}); err != nil {
			log.Fatal(err)
		}
		_, err = orders.Enqueue(ctx, "ship 42", nil)
		fmt.Printf("%q: busy %v, unauthorized %v, sent %v\n", text, errors.Is(err, queue.ErrThrottled), errors.Is(err, queue.ErrUnauthorized), err == nil)
	}
	// Output:
	// "*:503": busy true, unauthorized false, sent false
	// "*:403": busy false, unauthorized true, sent false
	// "": busy false, unauthorized false, sent true
}
