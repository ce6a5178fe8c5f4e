package roles

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/table"
)

// QueueName is the queue of deletions.
const QueueName = "deletechannelandblogs"

// Deletion asks for the deletion of a channel with its posts. The worker keeps its progress in it.
type Deletion struct {
	Channel     string               `json:"channel"`
	Incarnation channels.Incarnation `json:"incarnation"`

	Token table.Token `json:"token,omitempty"` // where the next page begins
	Found bool        `json:"found,omitempty"` // whether the pages before it had posts
	Late  bool        `json:"late,omitempty"`  // whether this is the second deletion, of what was written late
	Sent  bool        `json:"sent,omitempty"`  // whether the second one was sent
}

// Requester sends deletions: the part of the web role. It is safe for concurrent use.
type Requester struct {
	deletions *producer.Producer[Deletion]
}

// NewRequester returns a requester for the queue of deletions, which is created when it is missing. Wakeups may be nil.
func NewRequester(q queue.Queue, wakeups producer.Wakeups) *Requester {
	return &Requester{newProducer(q, wakeups)}
}

func newProducer(q queue.Queue, wakeups producer.Wakeups) *producer.Producer[Deletion] {
	return producer.New(q, &producer.Options[Deletion]{Create: true, Wakeups: wakeups})
}

// Delete asks for the deletion of a channel as it is now; one of the same name that is made later stays. The channel
// is there until a worker has the message.
func (r *Requester) Delete(ctx context.Context, c channels.Channel) error {
	if err := channels.CheckName(c.Name); err != nil {
		return err
	}
	if c.Incarnation == "" {
		return fmt.Errorf("delete channel %q: %w: it has no incarnation; read it first", c.Name, channels.ErrInvalid)
	}
	_, err := r.deletions.Send(ctx, Deletion{Channel: c.Name, Incarnation: c.Incarnation}, nil)
	return err
}
