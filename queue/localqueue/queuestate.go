package localqueue

import (
	"strings"
	"sync"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue/storage"
)

// queueState is one queue from its creation to its drop. A queue created again under the
// same name has another queueState.
type queueState struct {
	ordinal uint64     // never changes
	name    queue.Name // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; for callers that looked it up before the drop
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts issued
	reserved highWater         // guarded by mu; the numbers reserved in the store
	backlog  backlog           // guarded by mu
	pending  *ticket           // guarded by mu; the newest change of the above
	watchers *watchers         // guarded by mu; nil if nobody watches
}

// state returns the queue as a store keeps it. The caller holds mu, or the queue is not
// shared yet.
func (s *queueState) state() storage.QueueState {
	return storage.QueueState{
		Ordinal:  s.ordinal,
		Name:     s.name,
		Metadata: s.metadata,
		Policy:   s.policy,
		Enqueued: s.reserved.enqueued,
		Receipts: s.reserved.receipts,
	}
}

// errQueueMissing is what every operation on a missing queue fails with.
var errQueueMissing = &queue.Error{Kind: queue.ErrQueueMissing, Hint: "create it first"}

// sameMetadata compares as the service does: names case-insensitively, because HTTP does
// not preserve their case, and values exactly.
func sameMetadata(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	values := make(map[string]string, len(a))
	for name, value := range a {
		values[strings.ToLower(name)] = value
	}
	for name, value := range b {
		if have, ok := values[strings.ToLower(name)]; !ok || have != value {
			return false
		}
	}
	return true
}

// recordState records the queue's own state, if there is a store. The caller holds the
// lock; undo runs with it held.
func (q *Queue) recordState(s *queueState, undo func()) {
	q.record(s, storage.QueueSaved(s.state()), undo)
}
