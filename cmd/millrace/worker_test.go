package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

// workerVariable, if set, makes the test binary an instance that works on the queue of this name.
const workerVariable = "MILLRACE_TEST_WORKER"

// watchdog is how long processes of tests may take.
const watchdog = 2 * time.Minute

// runWorker handles jobs, two at a time, each of which takes as long as it says. It reports in a control queue.
func runWorker() {
	time.AfterFunc(watchdog, func() { os.Exit(1) }) // a test that fails may leave it behind
	q, err := azurequeue.Open(os.Getenv(accountVariable), os.Getenv(workerVariable), nil)
	var control queue.Queue
	if err == nil {
		control = q.Sibling("-control")
		err = millrace.Run(context.Background(), listener.New(q, func(ctx context.Context, m *listener.Message[string]) error {
			d, err := time.ParseDuration(m.Body)
			if err != nil {
				return err
			}
			fmt.Println("began", m.Body)
			time.Sleep(d)
			return nil
		}, &listener.Options[string]{
			Concurrency: 2,
			Beacon:      listener.BeaconOptions{Queue: control, Create: true},
		}))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("drained")
	os.Exit(0)
}
