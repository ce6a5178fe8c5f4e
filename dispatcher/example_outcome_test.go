package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

var (
	errBusy    = errors.New("the carrier is busy")
	errAddress = errors.New("no such street")
)

// The error of a handler decides what happens to its message.
func Example_outcome() {
	handler := func(_ context.Context, m *dispatcher.Message[string]) error {
		switch m.Body {
		case "busy":
			return dispatcher.Retry(30*time.Second, errBusy) // try again after this delay
		case "bad address":
			return dispatcher.Poison(errAddress) // no further attempt can succeed
		case "cancelled order":
			return dispatcher.Discard(nil) // no longer needed
		}
		return nil // done: the message is deleted
	}
	for _, body := range []string{"fine", "busy", "bad address", "cancelled order"} {
		fmt.Println(body, "->", handler(context.Background(), &dispatcher.Message[string]{Body: body}))
	}
	// Output:
	// fine -> <nil>
	// busy -> the carrier is busy
	// bad address -> no such street
	// cancelled order -> discarded
}
