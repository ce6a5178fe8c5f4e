package producer_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// The trace context goes along with every job. With OpenTelemetry the function injects the context
// into a propagation.MapCarrier and returns its "traceparent" and "tracestate".
func ExampleOptions() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "acme", Queue: "pictures"})
	type Resize struct{ Width int }
	resizes := producer.New(q, &producer.Options[Resize]{
		Kind:   "resize", // the queue has jobs of other kinds too
		Create: true,
		Trace: func(context.Context) (traceparent, tracestate string) {
			return "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", ""
		},
	})
	if _, err := resizes.Send(ctx, Resize{100}, &producer.SendOptions{Key: "album 12", DedupeKey: "album 12/3"}); err != nil {
		fmt.Println(err)
		return
	}
	batch, err := q.Peek(ctx, 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, rest, _ := strings.Cut(batch[0].Text, "&tp=") // behind the id and the time
	fmt.Println(rest)
	// Output:
	// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01&kd=resize&ky=album+12&dk=album+12%2F3
	// {"Width":100}
}
