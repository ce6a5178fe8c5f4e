package slots_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type mail struct{ To string }

// A mail service takes three calls at once. The listener finds that out, and no mail is lost or becomes poison.
func ExampleAdaptive() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	engine, err := localqueue.New(nil)
	if err != nil {
		panic(err)
	}
	mails := engine.Queue(queue.Name{Queue: "mails"})
	if err := mails.Create(ctx, nil); err != nil {
		panic(err)
	}
	p := producer.New[mail](mails, nil)
	for range 30 {
		if _, err := p.Send(ctx, mail{"a@example.com"}, nil); err != nil {
			panic(err)
		}
	}

	var calls, sent atomic.Int64
	send := func(ctx context.Context, m *listener.Message[mail]) error {
		defer calls.Add(-1)
		if calls.Add(1) > 3 {
			return slots.Exhausted(errors.New(http.StatusText(http.StatusTooManyRequests)))
		}
		if sent.Add(1) == 30 {
			cancel()
		}
		return nil
	}
	limit, err := slots.NewAdaptive(&slots.AdaptiveOptions{Max: 200})
	if err != nil {
		panic(err)
	}
	worker := listener.New(mails, send, &listener.Options[mail]{
		Slots:        limit.Slots(nil),
		Interceptors: []listener.Interceptor{limit.Intercept},
	})
	if err := worker.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("sent:", sent.Load(), "of 30; poison:", worker.State().Outcomes[listener.Poisoned])
	// Output: sent: 30 of 30; poison: 0
}

// The errors of a client library need not be wrapped.
func ExampleOptions() {
	errPoolIsFull := errors.New("no free connection")
	limit, err := slots.NewAdaptive(&slots.AdaptiveOptions{
		Start:     20,
		Exhausted: func(err error) bool { return errors.Is(err, errPoolIsFull) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	query := func(context.Context) error { return fmt.Errorf("insert: %w", errPoolIsFull) }
	err = limit.Intercept(context.Background(), listener.Delivery{Attempt: 1}, query)
	fmt.Println(listener.ResultOf(err).Outcome)
	fmt.Println(limit.State().Why)
	// Output:
	// snoozed
	// 20 → 18: insert: no free connection
}

// The limit shrinks before the container is killed for its memory.
func ExampleContainerMemory() {
	limit, err := slots.NewAdaptive(&slots.AdaptiveOptions{Max: 64, Memory: slots.ContainerMemory})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(limit.State())
	// Output: at most 1 handlers, 0 run; 1 since the start
}
