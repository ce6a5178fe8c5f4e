package localqueue_test

import (
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(_ *testing.T, name string) queue.Manager {
			return must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: name})
		},
	})
}

func TestConformanceInRealTime(t *testing.T) {
	if testing.Short() {
		t.Skip("the test waits for real seconds")
	}
	engine := must(localqueue.New(&localqueue.Options{DeletingFor: -1})) // shortens the wait
	queuetest.Run(t, queuetest.Harness{
		Open: func(_ *testing.T, name string) queue.Manager {
			return engine.Queue(queue.Name{Account: "local", Queue: name})
		},
		Quirks: queuetest.Quirks{RecreateAtOnce: "the test does not wait for 30 s"},
	})
}

func TestConformanceOfAccounts(t *testing.T) {
	queuetest.RunAccount(t, queuetest.AccountHarness{
		Bubble: true,
		Open:   func(*testing.T) queue.Account { return must(localqueue.New(nil)).Account("local") },
	})
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}
