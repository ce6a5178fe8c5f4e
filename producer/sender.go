package producer

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/queue"
)

// What a [queue.Queue] can do beyond a [queue.Sender], and some options need.
type (
	creator interface {
		Create(ctx context.Context, metadata map[string]string) error
	}
	measurer interface {
		Properties(ctx context.Context) (queue.Properties, error)
	}
	deleter interface {
		Delete(ctx context.Context, l queue.Lease) error
	}
)

// checkSender returns an error if the options need more than the sender can do.
func (p *Producer[T]) checkSender() error {
	if _, can := p.queue.(creator); !can && p.options.Create {
		return p.cannot("Create", "create a queue")
	}
	if _, can := p.queue.(measurer); !can && p.options.WakeupDepth > 0 {
		return p.cannot("WakeupDepth", "read a depth")
	}
	return nil
}

func (p *Producer[T]) cannot(option, what string) error {
	return fmt.Errorf("send to %v: %s is set, and a %T cannot %s: leave it out", p.queue.Name(), option, p.queue, what)
}
