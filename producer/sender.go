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

// finder is a sender over several queues that finds one of them by its name.
type finder interface {
	Lookup(name queue.Name) (queue.Queue, bool)
}

// queueNamed returns the queue of a sender with a name, which is the sender itself if it has no others; or
// nil.
func queueNamed(q queue.Sender, name queue.Name) queue.Sender {
	if f, several := q.(finder); several {
		if found, known := f.Lookup(name); known {
			return found
		}
	}
	if name == (queue.Name{}) || name == q.Name() {
		return q
	}
	return nil
}

func depthOf(ctx context.Context, q queue.Sender, name queue.Name) (queue.Properties, error) {
	one, can := queueNamed(q, name).(measurer)
	if !can {
		return queue.Properties{}, fmt.Errorf("a %T cannot read that of %v", q, name)
	}
	return one.Properties(ctx)
}

// checkSender returns an error if the options need more than the sender can do.
func (p *Producer[T]) checkSender() error {
	if _, can := p.queue.(creator); !can && p.options.Create {
		return p.cannot("Create", "create a queue")
	}
	_, can := p.queue.(measurer)
	if _, several := p.queue.(finder); !can && !several && p.options.WakeupDepth > 0 {
		return p.cannot("WakeupDepth", "read a depth")
	}
	return nil
}

func (p *Producer[T]) cannot(option, what string) error {
	return fmt.Errorf("send to %v: %s is set, and a %T cannot %s: leave it out", p.queue.Name(), option, p.queue, what)
}
