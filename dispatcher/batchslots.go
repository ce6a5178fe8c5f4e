package dispatcher

import (
	"sync/atomic"
)

// batchSlots are the slots that a dequeue reserved and does not need. They are freed together,
// once their number is known: they are then worth one dequeue, not several small ones.
type batchSlots struct {
	undecided atomic.Int32 // messages whose handler may still turn out not to run
	unused    atomic.Int32 // slots of messages that were refused, or that no message came for
}

// settleBatchSlots notes that this message needs its slot or not, and frees the unused slots of
// the batch with the last of its messages.
func (v *delivery) settleBatchSlots() {
	if v.batch.undecided.Add(-1) > 0 {
		return
	}
	if n := v.batch.unused.Load(); n > 0 {
		v.dispatcher.slots.unreserve(int(n))
	}
}
