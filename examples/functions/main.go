// Functions works together with Azure Functions: it handles the messages that a Function's queue
// output writes, and sends messages to a queue that triggers a Function.
//
//	go run ./examples/functions
//
// It uses in-memory queues and ends when its three messages are done.
package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Order struct{ ID, Item string }

type Shipped struct{ Order string }

func main() {
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), engine.Account("local"), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, account queue.Account, out io.Writer) error {
	working, stop := context.WithCancel(ctx)
	defer stop()
	orders, err1 := account.Open("orders")
	shipped, err2 := account.Open("shipped")
	if err := errors.Join(err1, err2, output(ctx, orders)); err != nil {
		return err
	}
	// A queue trigger expects Base64 and does not understand envelopes.
	notify := producer.New(shipped, &producer.Options[Shipped]{Format: codec.Base64, Create: true})
	ship := func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.Item == "" {
			return errors.New("nothing to ship")
		}
		_, err := notify.Send(ctx, Shipped{Order: m.Body.ID}, nil)
		return err
	}
	o := &listener.Options[Order]{
		// host.json has messageEncoding base64 by default, as here. Its other value means codec.Plain.
		// Without a Format, JSON is read in both encodings.
		Wire: listener.WireOptions{Format: codec.Base64},
		// The defaults of maxDequeueCount and visibilityTimeout in host.json.
		Poison:     poison.Policy{MaxAttempts: 5, Bare: true},
		RetryDelay: func(int, error) time.Duration { return 0 },
	}
	var done atomic.Int32
	o.Observer.Settled = func(_ listener.Delivery, outcome listener.Outcome, _ time.Duration) {
		if (outcome == listener.Deleted || outcome == listener.Poisoned) && done.Add(1) == 3 {
			stop()
		}
	}
	if err := millrace.Run(working, listener.New(orders, ship, o)); err != nil {
		return err
	}
	left, err := orders.Properties(ctx)
	err = errors.Join(err, show(ctx, shipped, out), show(ctx, orders.Sibling(poison.Suffix), out))
	fmt.Fprintf(out, "One order is shipped, two are poison, and %d are left: "+
		"all in Base64 without envelopes, as Functions reads them.\n", left.Depth)
	return err
}

// output writes messages as the output binding of a Function does: the body in Base64.
func output(ctx context.Context, q queue.Queue) error {
	if err := q.Create(ctx, nil); err != nil {
		return err
	}
	for _, body := range []string{`{"ID":"7","Item":"a lamp"}`, `{"ID":"8"}`, "not an order"} {
		if _, err := q.Enqueue(ctx, base64.StdEncoding.EncodeToString([]byte(body)), nil); err != nil {
			return err
		}
	}
	return nil
}

// show prints the messages on a queue. Functions use the same poison queue.
func show(ctx context.Context, q queue.Queue, out io.Writer) error {
	messages, err := q.Peek(ctx, queue.MaxBatch)
	for _, m := range messages {
		fmt.Fprintln(out, q.Name().Queue, m.Text)
	}
	return err
}
