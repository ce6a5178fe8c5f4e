package producer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// A reminder that is due in a day, and that nobody needs a week later.
func ExampleSendOptions() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q := engine.Queue(queue.Name{Queue: "reminders"})
	p := producer.New(q, &producer.Options[string]{Create: true})
	sent, err := p.Send(ctx, "your parcel is still here", &producer.SendOptions{
		Delay: 24 * time.Hour,
		TTL:   8 * 24 * time.Hour,
	})
	if err != nil {
		log.Fatal(err)
	}
	visible, err := q.Peek(ctx, 32)
	if err != nil {
		log.Fatal(err)
	}
	all, err := q.Properties(ctx)
	fmt.Println("sent:", sent.ID != "", "visible:", len(visible), "in the queue:", all.Depth, err)
	// Output: sent: true visible: 0 in the queue: 1 <nil>
}
