// Middleware shows what can stand around handlers: middleware that knows the job, and
// interceptors that do not, shared by all listeners and producers of a program.
//
//	go run ./examples/middleware
//
// It uses queues in this process, and ends when its jobs are done.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Order struct{ Item string }

type Email struct{ To string }

func main() {
	if err := run(context.Background(), log.New(os.Stdout, "", 0)); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out *log.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var open atomic.Int32 // jobs that are not done

	sent := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
		open.Add(1)
		err := next(ctx)
		out.Printf("sent to %v: %v", s.Queue, err)
		return err
	}
	handled := func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
		err := next(ctx)
		asked := listener.ResultOf(err) // tells a snooze from a failure
		out.Printf("%v, attempt %d, %d left: %v, %v", d.Queue, d.Attempt, d.AttemptsLeft(), asked.Outcome, asked.Err)
		again := asked.Outcome == listener.Snoozed || asked.Outcome == listener.Retried && !d.Last()
		if !again && open.Add(-1) == 0 {
			stop()
		}
		return err
	}

	engine := localqueue.New(nil)
	orders, emails := engine.Queue(queue.Name{Queue: "orders"}), engine.Queue(queue.Name{Queue: "emails"})
	order := producer.New(orders, &producer.Options[Order]{Create: true, Interceptors: []producer.Interceptor{sent}})
	email := producer.New(emails, &producer.Options[Email]{Create: true, Interceptors: []producer.Interceptor{sent}})
	_, lamp := order.Send(ctx, Order{Item: "a lamp"}, nil)
	_, nothing := order.Send(ctx, Order{Item: ""}, nil)
	_, bob := email.Send(ctx, Email{To: "bob"}, nil)
	if err := errors.Join(lamp, nothing, bob); err != nil {
		return err
	}
	around, twice := []listener.Interceptor{handled}, listener.PoisonPolicy{MaxAttempts: 2}
	return millrace.Run(ctx,
		listener.New(orders, listener.Chain(pay, complete), &listener.Options[Order]{Interceptors: around, Poison: twice}),
		listener.New(emails, write, &listener.Options[Email]{Interceptors: around}))
}

// complete is middleware for orders: no attempt would help those that it refuses.
func complete(next listener.Handler[Order]) listener.Handler[Order] {
	return func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.Item == "" {
			return listener.Poison(errors.New("an order of nothing"))
		}
		return next(ctx, m)
	}
}

// pay calls a bank that answers in the last attempt only. Code without a message finds the
// delivery in its context; with the job's id, the same in all attempts, nobody pays twice.
func pay(ctx context.Context, _ *listener.Message[Order]) error {
	if d, ok := listener.DeliveryFrom(ctx); !ok || d.Job == "" || !d.Last() {
		return errors.New("the bank does not answer")
	}
	return nil
}

// write finds at first that it is too early, which is no failure.
func write(_ context.Context, m *listener.Message[Email]) error {
	if m.DequeueCount == 1 {
		return listener.Snooze(time.Second)
	}
	return nil
}
