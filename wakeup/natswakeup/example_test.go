package natswakeup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/wakeup/natswakeup"
)

// A producer wakes a subscriber over a server. A worker subscribes by listener.Options.Wakeups.
func ExampleNew() {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	go s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(30 * time.Second) {
		fmt.Println("the server does not start")
		return
	}

	conn, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1)) // a worker outlives any outage
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	wakeups, err := natswakeup.New(conn, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer wakeups.Close()

	orders := queue.Name{Account: "acme", Queue: "orders"}
	listening, woken := make(chan bool, 1), make(chan queue.Name, 1)
	subscription, err := wakeups.Subscribe(orders, func(q queue.Name, _ int64, _ time.Time) {
		woken <- q
	}, func(on bool) { listening <- on })
	if err != nil {
		fmt.Println(err)
		return
	}
	defer subscription.Close()
	fmt.Println("listening:", <-listening)

	type Order struct{ ID string }
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	q := engine.Queue(orders)
	p := producer.New(q, &producer.Options[Order]{Wakeups: wakeups, Create: true})
	if _, err := p.Send(context.Background(), Order{"7"}, nil); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("work has come to", <-woken)
	// Output:
	// listening: true
	// work has come to acme/orders
}
