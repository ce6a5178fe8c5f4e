package perkey_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Payments of one account are booked one at a time, those of others meanwhile.
func Example() {
	type payment struct{ Amount int }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	payments := engine.Queue(queue.Name{Account: "example", Queue: "payments"})
	p := producer.New(payments, &producer.Options[payment]{Create: true})
	for _, account := range []string{"ann", "bob", "ann"} {
		if _, err := p.Send(ctx, payment{100}, &producer.SendOptions{Key: account}); err != nil {
			fmt.Println(err)
			return
		}
	}

	keys, err := perkey.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	balance := map[string]*int{"ann": new(int), "bob": new(int)} // without a lock: no other handler has the same account
	book := func(_ context.Context, m *listener.Message[payment]) error {
		account := balance[m.Key]
		before := *account
		time.Sleep(10 * time.Millisecond) // the bank responds
		*account = before + m.Body.Amount
		return nil
	}
	o := &listener.Options[payment]{Logger: slog.New(slog.DiscardHandler)}
	left := make(chan struct{}, 3)
	o.Observer.Settled = func(listener.Delivery, listener.Outcome, time.Duration) {
		if left <- struct{}{}; len(left) == cap(left) {
			stop()
		}
	}
	l := listener.New(payments, perkey.Wrap(keys, book), o)
	if err := l.Run(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("ann", *balance["ann"], "bob", *balance["bob"])
	// Output: ann 200 bob 100
}

// The key is what a function makes of the job. Several handlers that share the Keys share its keys.
func ExampleMiddlewareBy() {
	type upload struct{ File string }
	keys, err := perkey.New(&perkey.Options{Wait: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	scan := func(_ context.Context, m *listener.Message[upload]) error {
		fmt.Println("scanning", m.Body.File, "while", keys.State().Held, "file is held")
		return nil
	}
	one := perkey.MiddlewareBy(keys, func(m *listener.Message[upload]) string { return m.Body.File })
	h := listener.Chain(scan, one)
	fmt.Println(h(context.Background(), &listener.Message[upload]{Body: upload{"cat.jpg"}}))
	// Output:
	// scanning cat.jpg while 1 file is held
	// <nil>
}
