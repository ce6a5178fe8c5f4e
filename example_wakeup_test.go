package millrace_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// With wake-ups a worker that has nothing to do polls nothing, and has no loop. The engine sees the order and wakes
// the worker immediately. Without that the order would wait for the safety poll, for a minute at most.
func Example_wakeUps() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Account: "shop", Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	idle := make(chan struct{}, 1)
	ship := func(_ context.Context, m *listener.Message[string]) error {
		fmt.Println("shipping", m.Body)
		stop()
		return nil
	}
	l := listener.New(q, ship, &listener.Options[string]{
		Wakeups: engine, // natswakeup and serverwakeup carry events between processes
		Observer: listener.Observer{Scaled: func(_ queue.Name, loops int) {
			if loops == 0 {
				idle <- struct{}{}
			}
		}},
		Logger: slog.New(slog.DiscardHandler),
	})
	ended := make(chan error)
	go func() { ended <- l.Run(ctx) }()

	<-idle
	st := l.State()
	fmt.Println("loops:", st.Loops, "dequeues:", st.Polls, "ready:", st.Ready())
	orders := producer.New[string](q, nil)
	if _, err := orders.Send(ctx, "a kettle", nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-ended)
	// Output:
	// loops: 0 dequeues: 1 ready: true
	// shipping a kettle
	// <nil>
}
