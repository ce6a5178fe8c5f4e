// Middleware shows two ways to wrap handlers: middleware, which has the type of the job, and
// interceptors, which do not and are shared by all listeners and producers of a program.
//
//	go run ./examples/middleware
//
// It uses in-memory queues and ends when its jobs are done.
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
	var pending atomic.Int32 // jobs that are not done

	logSend := func(ctx context.Context, s *producer.Sending, next func(context.Context) error) error {
		pending.Add(1)
		err := next(ctx)
		out.Printf("sent to %v: %v", s.Queue, err)
		return err
	}
	logResult := func(ctx context.Context, d listener.Delivery, next func(context.Context) error) error {
		err := next(ctx)
		result := listener.ResultOf(err) // distinguishes a snooze from a failure
		out.Printf("%v, attempt %d, %d left: %v, %v", d.Queue, d.Attempt, d.AttemptsLeft(), result.Outcome, result.Err)
		again := result.Outcome == listener.Snoozed || result.Outcome == listener.Retried && !d.Last()
		if !again && pending.Add(-1) == 0 {
			stop()
		}
		return err
	}

	engine, err := localqueue.New(nil)
	if err != nil {
		return err
	}
	orders, emails := engine.Queue(queue.Name{Queue: "orders"}), engine.Queue(queue.Name{Queue: "emails"})
	order := producer.New(orders, &producer.Options[Order]{Create: true, Interceptors: []producer.Interceptor{logSend}})
	email := producer.New(emails, &producer.Options[Email]{Create: true, Interceptors: []producer.Interceptor{logSend}})
	_, err1 := order.Send(ctx, Order{Item: "a lamp"}, nil)
	_, err2 := order.Send(ctx, Order{Item: ""}, nil)
	_, err3 := email.Send(ctx, Email{To: "bob"}, nil)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	interceptors := []listener.Interceptor{logResult}
	o := &listener.Options[Order]{Interceptors: interceptors, Poison: listener.PoisonPolicy{MaxAttempts: 2}}
	return millrace.Run(ctx,
		listener.New(orders, listener.Chain(pay, rejectEmpty), o),
		listener.New(emails, write, &listener.Options[Email]{Interceptors: interceptors}))
}

// rejectEmpty is middleware for orders. Empty orders are poison, because no retry can succeed.
func rejectEmpty(next listener.Handler[Order]) listener.Handler[Order] {
	return func(ctx context.Context, m *listener.Message[Order]) error {
		if m.Body.Item == "" {
			return listener.Poison(errors.New("empty order"))
		}
		return next(ctx, m)
	}
}

// pay simulates a bank that responds only in the last attempt. It gets the delivery from the
// context, as code without a message can. The job id is the same in all attempts, so a real bank
// could use it to avoid a second payment.
func pay(ctx context.Context, _ *listener.Message[Order]) error {
	if d, ok := listener.DeliveryFrom(ctx); !ok || d.Job == "" || !d.Last() {
		return errors.New("the bank does not respond")
	}
	return nil
}

// write snoozes its first delivery, which is not a failure.
func write(_ context.Context, m *listener.Message[Email]) error {
	if m.DequeueCount == 1 {
		return listener.Snooze(time.Second)
	}
	return nil
}
