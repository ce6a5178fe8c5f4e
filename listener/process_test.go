package listener

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/azurequeue"
)

// workerVariable makes the test binary run a worker for the queue at this location.
const workerVariable = "MILLRACE_TEST_WORKER"

// work is the main function of a worker process. It prints the jobs it has handled and returns
// the exit code.
func work(location string) int {
	q, err := azurequeue.Open(location, "jobs", nil)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	l := New(q, func(_ context.Context, m *Message[job]) error {
		time.Sleep(time.Duration(m.Body.N%20) * time.Millisecond)
		fmt.Println(m.Body.N)
		return nil
	}, &Options[job]{
		Concurrency: 16, Lease: LeaseOptions{Visibility: dispatcher.FixedVisibility(dispatcher.MinVisibility)},
		Poison: poison.Policy{MaxLost: 100, MaxAttempts: 100}, // foreign messages count deliveries
	})
	if err := l.Run(context.Background()); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}
