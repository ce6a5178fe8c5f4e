package agent_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// cloud stands for a platform that runs instances.
type cloud struct{ instances atomic.Int64 }

func (c *cloud) Instances(context.Context) (int, error) { return int(c.instances.Load()), nil }

func (c *cloud) Scale(_ context.Context, n int) error {
	c.instances.Store(int64(n))
	return nil
}

// An agent finds 20 mails in a queue, and one instance.
func ExampleAgent() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	mails := engine.Queue(queue.Name{Account: "local", Queue: "mails"})
	if err := mails.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	for i := range 20 {
		if _, err := mails.Enqueue(ctx, fmt.Sprint("mail ", i), nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	platform := &cloud{}
	platform.instances.Store(1)
	a, err := agent.New([]agent.Pool{{
		Name: "mailer", Queues: []queue.Queue{mails}, Actuator: platform,
		Policy: scaling.Policy{Slots: 1, Handling: 10 * time.Second, Max: 10},
	}}, &agent.Options{
		OnDecision: func(d agent.Decided) {
			fmt.Println(d.Decision.Why)
			stop()
		},
		OnError: func(err error) { fmt.Println(err) },
		Logger:  slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("run:", a.Run(ctx))
	fmt.Println("instances:", platform.instances.Load())
	// Output:
	// 1 → 5: 20 waiting; 6 wanted, at most 4 more in one step
	// run: <nil>
	// instances: 5
}
