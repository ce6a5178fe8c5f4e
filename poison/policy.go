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

// Suffix is appended to the name of a queue for the name of its poison queue.
const Suffix = "-poison"

// Policy decides when a message is poison and where it is moved. The zero value is the default
// policy.
type Policy struct {
	// MaxAttempts is how many recorded failures make a message poison. For a message without an
	// envelope every delivery counts, also one whose worker died. Defaults to 5. Negative is an
	// error.
	MaxAttempts int

	// MaxLost is how many handlers in a row may be recorded to start without a result, because
	// the worker died or lost its lease, before the message is poison: the message itself may
	// kill the worker. The first start after each settlement is not recorded, so a job that kills its
	// worker runs MaxLost + 1 times. Deliveries that never reached a handler do not count, nor
	// do, in the same process, up to 20 handlers that returned without their lease. It applies
	// to messages with an envelope; if the text has no room for the record every delivery
	// counts. Defaults to 5. Negative is an error.
	MaxLost int

	// Queue is where poison is moved. It is created when missing. Defaults to the sibling of
	// the queue with [Suffix]. A queue that is itself a poison queue, or whose name is too long
	// for the suffix, has no default: see Keep.
	Queue queue.Queue

	// Bare copies only the body, as consumers of other frameworks expect it: no [Record], and no
	// envelope either. The body is as it is, or in Base64 if XML cannot carry it. A message that
	// has no envelope is copied unchanged, and so is one whose body is stored elsewhere. Why it is
	// poison, where it came from, and the kind of its job are lost. Defaults to false.
	Bare bool

	// Keep leaves a poison message in its queue, never handled, and hidden again each time it
	// becomes visible: for a minute at first, then for twice as long each time, up to a day, and
	// for at most half of its remaining life. Defaults to false, except where Queue has no
	// default.
	Keep bool
}

// WithDefaults returns p with the defaults for the queue q, or an error for an invalid policy.
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
			return p, errors.New("poison policy sets both Queue and Keep: set only one")
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
		return p, fmt.Errorf("poison queue %v is the queue itself: its messages would be moved to itself for ever", q.Name())
	}
	return p, nil
}

// hasSibling reports whether a queue can have a poison queue beside it.
func hasSibling(name string) bool {
	return !strings.HasSuffix(name, Suffix) && queue.CheckName(name+Suffix) == nil
}
