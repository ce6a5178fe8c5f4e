package listener_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Messages of other programs have no envelope. With AcceptForeign they get one when they first fail, and
// attempts are recorded in it.
func ExampleOptions_acceptForeign() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if err := q.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := q.Enqueue(ctx, `{"ID":"7"}`, nil); err != nil { // such as from Python
		fmt.Println(err)
		return
	}
	ship := func(_ context.Context, m *listener.Message[Order]) error {
		fmt.Println("order", m.Body.ID, "has", m.Attempt-1, "failures on record")
		if m.Attempt < 3 {
			return listener.Retry(0, errors.New("no van"))
		}
		stop()
		return nil
	}
	if err := listener.New(q, ship, &listener.Options[Order]{Wire: listener.WireOptions{AcceptForeign: true}}).Run(ctx); err != nil {
		fmt.Println(err)
	}
	// Output:
	// order 7 has 0 failures on record
	// order 7 has 1 failures on record
	// order 7 has 2 failures on record
}
