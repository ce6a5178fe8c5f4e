package azurequeue

import (
	"errors"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
)

// parse parses a location. The error is [queue.ErrInvalid] and never contains the location.
func parse(text string) (azurestorage.Location, error) {
	at, err := azurestorage.Queue.Parse(text)
	if wrong := (*azurestorage.ParseError)(nil); errors.As(err, &wrong) {
		return at, invalid(wrong.Hint, "%s", wrong.Detail)
	}
	return at, err
}

// check refuses a name that the service would refuse, and any other name if the location is a
// queue's address.
func check(at azurestorage.Location, name string) error {
	if at.Resource != "" && at.Resource != name {
		return invalid("leave out what follows the account", "the location has a path that is not the queue name")
	}
	return queue.CheckName(name)
}
