package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
)

type meterOrder struct{ ID int }

// A meter around the queue of a program says what its requests are for and what they cost.
func Example_meter() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := new(metered.Meter)
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := m.Wrap(engine.Queue(queue.Name{Account: "shop", Queue: "orders"}))

	orders := producer.New(q, &producer.Options[meterOrder]{Create: true})
	for i := range 3 {
		if _, err := orders.Send(ctx, meterOrder{i}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}
	sent := m.Counts()
	fmt.Println("producer:", sent)

	worker := listener.New(q, func(_ context.Context, m *listener.Message[meterOrder]) error {
		if m.Body.ID == 2 {
			stop() // after the last order
			return listener.Poison(errors.New("no address"))
		}
		return nil
	}, &listener.Options[meterOrder]{Concurrency: 1, Logger: slog.New(slog.DiscardHandler)})
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	spent := m.Counts().Minus(sent)
	fmt.Println("worker:", spent)
	fmt.Println("moving poison took", spent.Cause(metered.CausePoison).Requests, "requests")

	cost, known := m.Counts().Cost(metered.Price{Class1: 0.01, Unit: 10_000}) // of your price sheet
	fmt.Printf("together: $%.6f %v\n", cost, known)
	// Output:
	// producer: 4 send, 1 create; 1 failed
	// worker: 4 poison, 3 fetch, 2 delete, 1 depth
	// moving poison took 4 requests
	// together: $0.000015 true
}

// Counts have a JSON form, for dashboards.
func Example_meterCounts() {
	m := new(metered.Meter)
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := m.Wrap(engine.Queue(queue.Name{Account: "shop", Queue: "orders"}))
	ctx := metered.WithCause(context.Background(), metered.CauseCreate)
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	_ = q.Create(metered.WithRepeats(ctx, 1), map[string]string{"team": "sales"}) // the queue has no such metadata
	text, err := json.Marshal(m.Counts())
	fmt.Println(string(text), err)
	// Output: [{"operation":"create","cause":"create","requests":2,"repeated":1,"failed":1}] <nil>
}
