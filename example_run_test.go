package millrace_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type Order struct{ ID string }

// silent keeps the log out of what the examples print.
var silent = slog.New(slog.DiscardHandler)

// Several listeners run until a signal comes or their context ends. Here the last job ends it.
func ExampleRun() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	orders, letters := engine.Queue(queue.Name{Queue: "orders"}), engine.Queue(queue.Name{Queue: "letters"})
	if _, err := producer.New(orders, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	confirm := producer.New(letters, &producer.Options[string]{Create: true})
	ship := func(ctx context.Context, m *listener.Message[Order]) error {
		fmt.Println("shipping", m.Body.ID)
		_, err := confirm.Send(ctx, "order "+m.Body.ID+" is on its way", nil)
		return err
	}
	write := func(_ context.Context, m *listener.Message[string]) error {
		fmt.Println("writing:", m.Body)
		stop()
		return nil
	}
	err = millrace.Run(ctx,
		listener.New(orders, ship, &listener.Options[Order]{Logger: silent}),
		listener.New(letters, write, &listener.Options[string]{Logger: silent}))
	fmt.Println(err)
	// Output:
	// shipping 7
	// writing: order 7 is on its way
	// <nil>
}

// An HTTP server responds until the listener has drained: a job that is running at the stop can
// still reach it.
func ExampleRunOrdered() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	address := make(chan string, 1)
	server := &http.Server{
		Addr: "127.0.0.1:0", // any free port; BaseContext learns which
		BaseContext: func(l net.Listener) context.Context {
			address <- l.Addr().String()
			return context.Background()
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "still here") }),
	}
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(queue.Name{Queue: "orders"})
	if _, err := producer.New(q, &producer.Options[Order]{Create: true}).Send(ctx, Order{ID: "7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	l := listener.New(q, func(ctx context.Context, _ *listener.Message[Order]) error {
		stop() // as a signal does
		response, err := http.Get("http://" + <-address)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		fmt.Println(string(body))
		return err
	}, &listener.Options[Order]{Logger: silent})
	fmt.Println(millrace.RunOrdered(ctx, millrace.HTTP(server, nil), l))
	// Output:
	// still here
	// <nil>
}
