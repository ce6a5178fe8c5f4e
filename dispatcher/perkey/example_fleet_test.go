package perkey_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// A fleet in which each shard has one reader: whoever holds the lease of the job "read shard i" reads it. One account
// has one handler at a time in the whole fleet.
func Example_fleet() {
	type payment struct{ Amount int }
	type reading struct{ Shard int }
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	engine, err := localqueue.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(name string) queue.Queue { return engine.Queue(queue.Name{Account: "example", Queue: name}) }
	readings, shards := open("readings"), []queue.Queue{open("payments-0"), open("payments-1"), open("payments-2")}
	quiet := slog.New(slog.DiscardHandler)

	// Once, when the fleet is set up: as many jobs as there are shards.
	setUp := producer.New(readings, &producer.Options[reading]{Create: true})
	for i := range shards {
		if _, err := setUp.Send(ctx, reading{i}, nil); err != nil {
			fmt.Println(err)
			return
		}
	}

	// The senders.
	all, err := sharded.New(shards, &sharded.Options{Place: sharded.ByKey})
	if err != nil {
		fmt.Println(err)
		return
	}
	payments := producer.New(all, &producer.Options[payment]{Create: true})
	accounts := []string{"ann", "bob", "cem", "dora"}
	balance := map[string]*int{} // without a lock: nobody else has the same account
	for _, account := range accounts {
		balance[account] = new(int)
		for range 25 {
			if _, err := payments.Send(ctx, payment{1}, &producer.SendOptions{Key: account}); err != nil {
				fmt.Println(err)
				return
			}
		}
	}

	// Every process.
	var booked sync.WaitGroup
	booked.Add(100)
	process := func() error {
		keys, err := perkey.New(nil)
		if err != nil {
			return err
		}
		book := func(_ context.Context, m *listener.Message[payment]) error {
			before := *balance[m.Key]
			time.Sleep(time.Millisecond) // the bank responds
			*balance[m.Key] = before + m.Body.Amount
			booked.Done()
			return nil
		}
		read := func(ctx context.Context, m *listener.Message[reading]) error {
			l := listener.New(shards[m.Body.Shard], perkey.Wrap(keys, book),
				&listener.Options[payment]{Create: true, Grace: 10 * time.Second, Logger: quiet})
			if err := l.Run(ctx); err != nil { // until the lease is lost, or the process stops
				return err
			}
			return listener.Snooze(0) // for another process, without an attempt
		}
		return listener.New(readings, read, &listener.Options[reading]{
			Concurrency: 2,                                                                         // shards that a process reads at most
			Poison:      listener.PoisonPolicy{MaxAttempts: 1 << 20, MaxLost: 1 << 20, Keep: true}, // a process that dies is no fault of the shard
			Grace:       -1,                                                                        // the readers stop with the process,
			Lease: listener.LeaseOptions{
				SettleTimeout: 30 * time.Second,                           // and have this long for their own Grace
				Visibility:    listener.FixedVisibility(30 * time.Second), // until another takes over from one that died
			},
			Logger: quiet,
		}).Run(ctx)
	}
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if err := process(); err != nil {
				fmt.Println(err)
			}
		})
	}
	booked.Wait()
	stop()
	running.Wait()
	for _, account := range accounts {
		fmt.Println(account, *balance[account])
	}
	// Output:
	// ann 25
	// bob 25
	// cem 25
	// dora 25
}
