package dispatcher

import (
	"testing"

	"github.com/millrace/millrace/queue"
)

func TestALeaseIsGoneWithItsMessageOrItsQueue(t *testing.T) {
	for _, err := range []error{queue.ErrMessageGone, queue.ErrReceiptMismatch, queue.ErrQueueMissing, queue.ErrQueueBeingDeleted} {
		if !leaseGone(err) {
			t.Errorf("%v: got false, want true", err)
		}
	}
	if leaseGone(queue.ErrOutcomeUnknown) {
		t.Error("unknown outcome: got true, want false")
	}
}
