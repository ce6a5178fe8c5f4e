package listener_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Report is a job that takes as long as it has pages.
type Report struct{ Pages int }

// A time-out for each job. The context of the handler has it as its deadline.
func ExampleOptions_timeoutFor() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "reports"})
	if _, err := producer.New(q, &producer.Options[Report]{Create: true}).Send(ctx, Report{Pages: 3}, nil); err != nil {
		fmt.Println(err)
		return
	}
	write := func(ctx context.Context, _ *listener.Message[Report]) error {
		<-ctx.Done() // it takes too long
		fmt.Println(errors.Is(context.Cause(ctx), listener.ErrTimeout), errors.Is(ctx.Err(), context.DeadlineExceeded))
		stop()
		return ctx.Err()
	}
	l := listener.New(q, write, &listener.Options[Report]{
		TimeoutFor: func(m *listener.Message[Report]) time.Duration {
			return time.Duration(m.Body.Pages) * time.Millisecond
		},
	})
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("retried:", l.State().Outcomes[listener.Retried])
	// Output:
	// true true
	// retried: 1
}
