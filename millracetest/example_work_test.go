package millracetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
)

// Parcel is a job.
type Parcel struct {
	ID      string
	Address string
}

var (
	errCarrier = errors.New("the carrier does not respond")
	errNoAddr  = errors.New("no address")
)

// deliver is the handler under test.
func deliver(_ context.Context, m *listener.Message[Parcel]) error {
	switch m.Body.Address {
	case "":
		return listener.Poison(errNoAddr)
	case "far away":
		return errCarrier
	}
	return nil
}

// Work runs one job through the real pipeline, once, and returns the result.
func ExampleWork() {
	t := tb{} // in a test: its *testing.T

	r := millracetest.Work(t, deliver, Parcel{ID: "1", Address: "High Street 1"}, nil)
	fmt.Println(r.Outcome, r.Err)

	// A failed job is retried, about a second after its first attempt.
	r = millracetest.Work(t, deliver, Parcel{ID: "2", Address: "far away"}, nil)
	fmt.Println(r.Outcome, errors.Is(r.Err, errCarrier), r.Attempts, r.Delay.Round(time.Second))

	// The handler can ask for another outcome.
	r = millracetest.Work(t, deliver, Parcel{ID: "3"}, nil)
	fmt.Println(r.Outcome, r.Poison.Reason, r.Poison.Error)
	// Output:
	// deleted <nil>
	// retried true 1 1s
	// poisoned rejected no address
}

// If only one attempt is allowed, the first is the last.
func ExampleWork_lastAttempt() {
	t := tb{} // in a test: its *testing.T

	o := &listener.Options[Parcel]{Poison: poison.Policy{MaxAttempts: 1}}
	r := millracetest.Work(t, deliver, Parcel{ID: "2", Address: "far away"}, o)
	fmt.Println(r.Outcome, r.Poison.Reason)
	// Output: poisoned attempts
}
