package filequeue_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/filequeue"
)

// Queues in a directory survive the program.
func ExampleOpen() {
	dir, err := os.MkdirTemp("", "queues")
	if err != nil {
		log.Fatal(err)
	}
	useTwice(dir)
	if err := os.RemoveAll(dir); err != nil {
		log.Fatal(err)
	}
	// Output:
	// found 0 messages in 0 queues
	// a second one is refused: true
	// found 1 messages in 1 queues
	// ship 42
}

func useTwice(dir string) {
	ctx := context.Background()
	name := queue.Name{Account: "local", Queue: "orders"}

	engine := open(dir)
	orders := engine.Queue(name)
	if err := orders.Create(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if _, err := orders.Enqueue(ctx, "ship 42", nil); err != nil {
		log.Fatal(err)
	}
	_, err := filequeue.Open(dir, nil)
	fmt.Println("a second one is refused:", errors.Is(err, filequeue.ErrLocked))
	if err := engine.Close(); err != nil {
		log.Fatal(err)
	}

	engine = open(dir) // as after a restart
	batch, err := engine.Queue(name).Peek(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(batch[0].Text)
	if err := engine.Close(); err != nil {
		log.Fatal(err)
	}
}

func open(dir string) *filequeue.Engine {
	engine, err := filequeue.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	found := engine.Found()
	for _, damage := range found.Damage {
		fmt.Println(damage)
	}
	fmt.Printf("found %d messages in %d queues\n", found.Messages, found.Queues)
	return engine
}
