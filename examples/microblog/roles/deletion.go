package roles

import (
	"context"
	"log/slog"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/wakeup"
)

// QueueName is the queue of deletions.
const QueueName = "deletechannelandblogs"

// Deletion asks for the deletion of a channel with its blogs. The worker keeps its progress in it.
type Deletion struct {
	Channel     string               `json:"channel"`
	Incarnation channels.Incarnation `json:"incarnation"`
	Token       table.Token          `json:"token,omitempty"` // where the next page begins
}

// Requester sends deletions: the part of the web role. It is safe for concurrent use.
type Requester struct{}

// NewRequester returns a requester for the queue of deletions.
func NewRequester(q queue.Queue, wakeups wakeup.Publisher) *Requester { panic("not written yet") }

// Delete asks for the deletion of a channel as it is now; one of the same name that is made later stays.
func (r *Requester) Delete(ctx context.Context, c channels.Channel) error { panic("not written yet") }

// NewWorker returns the worker role, a [millrace.Runner].
func NewWorker(q queue.Queue, site *channels.Site, wakeups wakeup.Source, logger *slog.Logger) *listener.Listener[Deletion] {
	panic("not written yet")
}
