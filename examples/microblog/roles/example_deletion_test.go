package roles_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/examples/microblog/roles"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/wakeup"
)

// The web role asks for the deletion of a channel, and a worker deletes it.
func ExampleRequester_Delete() {
	ctx, stop := context.WithCancel(context.Background())
	engine, err := localqueue.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	q, err := engine.Account("local").Open(roles.QueueName)
	if err != nil {
		log.Fatal(err)
	}
	site := &channels.Site{Channels: table.Memory("Channels"), Posts: table.Memory("Blogs")}
	var wakeups wakeup.Bus // so that the worker need not poll

	worker := roles.NewWorker(q, site, &wakeups, slog.New(slog.DiscardHandler))
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()

	c, err := site.Create(ctx, "news", "ann")
	if err != nil {
		log.Fatal(err)
	}
	if err := roles.NewRequester(q, &wakeups).Delete(ctx, c); err != nil {
		log.Fatal(err)
	}
	for err == nil {
		_, err = site.Channel(ctx, "news")
		time.Sleep(time.Millisecond)
	}
	fmt.Println(errors.Is(err, channels.ErrNoChannel))

	stop()
	fmt.Println(<-ended)
	// Output:
	// true
	// <nil>
}
