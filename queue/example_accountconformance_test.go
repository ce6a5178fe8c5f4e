package queue_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
)

// accountConformance is TestConformanceOfAccounts in the package of the account.
func accountConformance(t *testing.T) {
	queuetest.RunAccount(t, queuetest.AccountHarness{
		Bubble: true,
		Open: func(t *testing.T) queue.Account {
			engine, err := localqueue.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			return engine.Account("acme")
		},
	})
}

// The same for what lists and opens queues.
func Example_accountConformance() {
	fmt.Println("conforms:", suitetest.Passes(accountConformance))
	// Output: conforms: true
}
