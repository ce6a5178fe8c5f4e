package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/azurequeue"
)

// The variables that make the test binary a worker for the queue at a location, with a shared guard
// in a directory.
const (
	workerVariable    = "MILLRACE_TEST_WORKER"
	directoryVariable = "MILLRACE_TEST_DIRECTORY"
)

// work is the main function of a worker process. It prints the jobs that it handles and returns the
// exit code.
func work(location, directory string) int {
	if err := workUntilKilled(location, directory); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func workUntilKilled(location, directory string) error {
	q, err := azurequeue.Open(location, "jobs", nil)
	store, broken := blob.Open(directory)
	if err := errors.Join(err, broken); err != nil {
		return err
	}
	g, err := dedupe.NewShared(store, container, nil)
	if err != nil {
		return err
	}
	return listener.New(q, func(_ context.Context, m *listener.Message[job]) error {
		fmt.Println(m.Body.Name)
		time.Sleep(5 * time.Millisecond)
		return nil
	}, &listener.Options[job]{
		Duplicates: g, Concurrency: concurrency, Lease: listener.LeaseOptions{Visibility: listener.FixedVisibility(time.Second)}, // raised to 5 s
		Poison: listener.PoisonPolicy{MaxLost: 100},
	}).Run(context.Background())
}

// concurrency is how many jobs a worker process handles at once.
const concurrency = 4
