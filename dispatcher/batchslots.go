package dispatcher

import (
	"sync/atomic"
)

// room is the slots that a batch does not need. They are freed together, when it is known
// which they are: they are worth one dequeue, not several small ones.
type batchSlots struct {
	undecided atomic.Int32 // messages that may be refused yet
	unused    atomic.Int32 // slots of what is refused, or of no message
}

// decided frees the slots that the batch does not need, when that is known of its last
// message.
func (v *delivery[T]) settleBatchSlots() {
	if v.batch.undecided.Add(-1) > 0 {
		return
	}
	if n := v.batch.unused.Load(); n > 0 {
		v.dispatcher.slots.unreserve(int(n))
	}
}
