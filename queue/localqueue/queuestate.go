package localqueue

import (
	"strings"
	"sync"

	"github.com/millrace/millrace/queue"
)

// contents are one queue from its creation to its drop. One that is created again
// under the same name is another.
type queueState struct {
	ordinal uint64     // never changes
	name    queue.Name // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; whoever looked us up before the drop finds out here
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts given out
	reserved highWater         // guarded by mu; those that the store knows
	backlog  backlog           // guarded by mu
	pending  *ticket           // guarded by mu; the newest change of the above
}

// state is the queue as a store keeps it. The caller holds mu, or nobody else
// knows the queue.
func (s *queueState) state() QueueState {
	return QueueState{
		Ordinal:  s.ordinal,
		Name:     s.name,
		Metadata: s.metadata,
		Policy:   s.policy,
		Enqueued: s.reserved.enqueued,
		Receipts: s.reserved.receipts,
	}
}

// missing is what every operation on a queue that is not there fails with.
var errQueueMissing = &queue.Error{Kind: queue.ErrQueueMissing, Hint: "create it first"}

// sameMetadata compares as the service does: names without regard to case,
// which HTTP does not keep, values with it.
func sameMetadata(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	folded := make(map[string]string, len(a))
	for name, value := range a {
		folded[strings.ToLower(name)] = value
	}
	for name, value := range b {
		if have, ok := folded[strings.ToLower(name)]; !ok || have != value {
			return false
		}
	}
	return true
}

// saved writes down what is known of the queue besides its messages, if there
// is a store. The caller holds the lock; undo is called with it held.
func (q *Queue) recordState(s *queueState, undo func()) {
	q.record(s, QueueSaved(s.state()), undo)
}
