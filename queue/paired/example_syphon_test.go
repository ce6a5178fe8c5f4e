package paired_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/paired"
)

// A worker is a listener with a syphon beside it, which brings home what a sender diverted.
func ExampleSyphon() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	west := engine.Queue(queue.Name{Account: "west", Queue: "orders"})
	east := engine.Queue(queue.Name{Account: "east", Queue: "orders"})
	quiet := slog.New(slog.DiscardHandler)
	if err := west.Create(ctx, nil); err != nil {
		fmt.Println(err)
		return
	}
	// The sender, in an outage of the west.
	down, err := faultqueue.New(west, &faultqueue.Options{
		Every:   faultqueue.Rates{Unavailable: 1},
		Latency: faultqueue.Range{Min: time.Millisecond},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	sending, err := paired.New(down, east, &paired.Options{FailoverInterval: -1, Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sending.Close()
	if err := sending.Pair(ctx); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := producer.New[string](sending, nil).Send(ctx, "a lamp", nil); err != nil {
		fmt.Println(err)
		return
	}
	// The worker, when the west is back.
	receiving, err := paired.New(west, east, &paired.Options{Logger: quiet})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer receiving.Close()
	handle := func(_ context.Context, m *listener.Message[string]) error {
		fmt.Println(m.Body)
		stop()
		return nil
	}
	syphon, err := paired.NewSyphon([]*paired.Queue{receiving}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := millrace.Run(ctx, listener.New(receiving, handle, &listener.Options[string]{Logger: quiet}), syphon); err != nil {
		fmt.Println(err)
	}
	fmt.Println(syphon.State().Moved, "brought home")
	// Output:
	// a lamp
	// 1 brought home
}
