package poison

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/queue"
)

// Defaults of [Policy].
const (
	DefaultMaxAttempts = 5
	DefaultMaxLost     = 5
)

// Suffix is what a poison queue's name adds to its queue's.
const Suffix = "-poison"

// Policy says when a message is poison and where it goes. The zero value is the
// default.
type Policy struct {
	// MaxAttempts is how many recorded failures make a message poison. Of a message
	// without an envelope every delivery counts, also one whose worker died (P-01,
	// P-04). Defaults to 5. Negative is refused.
	MaxAttempts int

	// MaxLost is how many handlers in a row may be recorded to start and come to nothing,
	// because the worker died or lost its lease, before the message is poison: it may be
	// what kills the worker. The first start after each settlement is not recorded, so a
	// job that kills its worker runs MaxLost + 1 times. Deliveries that no handler saw do
	// not count, nor do, in the same process, handlers that returned without their lease,
	// up to 20 times. It counts for messages with an envelope; where the text has no room
	// for the record every delivery counts. Defaults to 5. Negative is refused.
	MaxLost int

	// Queue is where poison goes; it is created when missing. Defaults to the
	// queue's sibling with [Suffix]. A queue that is itself a poison queue, or
	// whose name is too long for a suffix, has no default: see Keep.
	Queue queue.Queue

	// Bare copies the text alone, as other frameworks do, without a [Record].
	Bare bool

	// Keep moves nothing: a message past its bounds stays in its queue, hidden
	// for the longest retry delay each time it comes up, and is not handled.
	// Defaults to false, except where Queue has no default.
	Keep bool
}

// WithDefaults returns p with the defaults for the queue q filled in, or an error
// that says what is wrong.
func (p Policy) WithDefaults(q queue.Queue) (Policy, error) {
	if p.MaxAttempts < 0 || p.MaxLost < 0 {
		return p, fmt.Errorf("poison thresholds of %d attempts and %d lost starts must be at least 1", p.MaxAttempts, p.MaxLost)
	}
	if p.MaxLost == 0 {
		p.MaxLost = DefaultMaxLost
	}
	if p.MaxAttempts == 0 {
		p.MaxAttempts = DefaultMaxAttempts
	}
	if p.Keep {
		if p.Queue != nil {
			return p, errors.New("poison policy has both a queue and Keep: choose one")
		}
		return p, nil
	}
	if p.Queue == nil {
		if !hasSibling(q.Name().Queue) {
			p.Keep = true
			return p, nil
		}
		p.Queue = q.Sibling(Suffix)
	}
	if p.Queue.Name() == q.Name() {
		return p, fmt.Errorf("poison queue %v is the queue itself: its messages would go round for ever", q.Name())
	}
	return p, nil
}

// hasSibling tells whether a queue can have a poison queue beside it.
func hasSibling(name string) bool {
	return !strings.HasSuffix(name, Suffix) && queue.CheckName(name+Suffix) == nil
}
