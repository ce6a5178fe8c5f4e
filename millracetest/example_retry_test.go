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

// Work returns the delay after a failed attempt. The last allowed attempt ends in the poison queue.
func ExampleWork_retry() {
	t := tb{} // in a test: its *testing.T

	busy := func(context.Context, *listener.Message[Parcel]) error { return errors.New("the road is closed") }
	options := &listener.Options[Parcel]{
		RetryDelay: func(attempt int, err error) time.Duration { return time.Duration(attempt) * time.Minute },
	}
	r := millracetest.Work(t, busy, Parcel{ID: "1"}, options)
	fmt.Println(r.Outcome, "after", r.Attempts, "attempt, again in", r.Delay)

	options.Poison = poison.Policy{MaxAttempts: 1}
	r = millracetest.Work(t, busy, Parcel{ID: "1"}, options)
	fmt.Println(r.Outcome, "because of", r.Poison.Reason+":", r.Poison.Error)
	// Output:
	// retried after 1 attempt, again in 1m0s
	// poisoned because of attempts: the road is closed
}
