package dispatcher_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

var (
	errTooMany = errors.New("429 from the carrier")
	errAddress = errors.New("no such street")
)

// The error of a handler decides what happens to its message.
func Example_outcome() {
	handler := func(_ context.Context, m *dispatcher.Message[string]) error {
		switch m.Body {
		case "busy":
			return dispatcher.Retry(30*time.Second, errTooMany) // later, at a time of our own
		case "bad address":
			return dispatcher.Poison(errAddress) // no attempt will help
		case "cancelled order":
			return dispatcher.Discard(nil) // nobody needs it any more
		}
		return nil // done: the message is deleted
	}
	for _, body := range []string{"fine", "busy", "bad address", "cancelled order"} {
		fmt.Println(body, "->", handler(context.Background(), &dispatcher.Message[string]{Body: body}))
	}
	// Output:
	// fine -> <nil>
	// busy -> 429 from the carrier
	// bad address -> no such street
	// cancelled order -> discarded
}
