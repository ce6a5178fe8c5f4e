package millracetest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
)

// A handler takes too long. In a synctest bubble the time-out could be an hour and would take no
// time.
func ExampleWork_timeout() {
	t := tb{} // in a test: its *testing.T

	slow := func(ctx context.Context, _ *listener.Message[Parcel]) error {
		<-ctx.Done()
		return ctx.Err()
	}
	r := millracetest.Work(t, slow, Parcel{ID: "1"}, &listener.Options[Parcel]{Timeout: time.Millisecond})
	fmt.Println(r.Outcome, errors.Is(r.Err, listener.ErrTimeout))
	// Output: retried true
}
