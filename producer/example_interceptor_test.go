package producer_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// An interceptor stands around every Send, whatever the jobs are. This one sends the trace
// context along, which the worker finds in its Delivery.
func ExampleInterceptor() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	traced := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
		s.Trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" // from ctx, in a real program
		err := next(ctx)
		fmt.Println("sent to", s.Queue.Queue, s.Sent.ID != "", err)
		return err
	}
	p := producer.New(q, &producer.Options[string]{Create: true, Interceptors: []producer.Interceptor{traced}})
	if _, err := p.Send(ctx, "order 7", nil); err != nil {
		log.Fatal(err)
	}
	batch, err := q.Peek(ctx, 1)
	if err != nil || len(batch) != 1 {
		log.Fatal(batch, err)
	}
	_, rest, _ := strings.Cut(batch[0].Text, "&tp=") // behind the id and the time
	fmt.Println(rest)
	// Output:
	// sent to orders true <nil>
	// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
	// "order 7"
}
