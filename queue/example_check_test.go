package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/queue/localqueue"
)

// refusing is a queue of our own, with a smaller limit than the service's. The checks of
// package driver hold the service's limits and give their errors.
type refusing struct{ queue.Queue }

func (q refusing) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	err := errors.Join(driver.CheckText(text), driver.CheckEnqueue(o))
	if err == nil && len(text) > 1000 {
		err = queue.ErrTooLarge
	}
	if err != nil {
		return queue.Message{}, driver.Explain(err, "enqueue", q.Name(), "")
	}
	return q.Queue.Enqueue(ctx, text, o)
}

// An error of any queue names what was attempted, and can be told apart.
func Example_author() {
	ctx := context.Background()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := refusing{engine.Queue(queue.Name{Account: "acme", Queue: "orders"})}
	_, err = q.Enqueue(ctx, strings.Repeat("x", 1001), nil)
	fmt.Println(errors.Is(err, queue.ErrTooLarge), err)
	_, err = q.Enqueue(ctx, "\x00", nil)
	fmt.Println(errors.Is(err, queue.ErrInvalid))
	// Output:
	// true enqueue on acme/orders: too large
	// true
}
