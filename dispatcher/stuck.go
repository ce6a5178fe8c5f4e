package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// StuckError reports a handler that still runs long after its context has ended. It is passed
// to Options.OnError.
type StuckError struct {
	Queue   queue.Name
	ID      queue.ID
	Cause   error         // why its context ended
	For     time.Duration // how long ago
	GivenUp bool          // whether its slot was freed
	Stacks  []byte        // of the goroutines that run handlers, including this one; may be truncated
}

// Error describes the handler in one line, without the stacks.
func (e *StuckError) Error() string {
	what := "its slot stays taken"
	if e.GivenUp {
		what = "its slot was freed for another"
	}
	return fmt.Sprintf("handler of message %s of %v still runs %v after its context ended: %s; let handlers watch their context: %v",
		string(e.ID), e.Queue, e.For, what, e.Cause)
}

// Unwrap returns Cause.
func (e *StuckError) Unwrap() error { return e.Cause }

// maxStacks bounds the size of the stacks in bytes.
const maxStacks = 256 << 10

// slotState tells whether a delivery still has its slot. The handler's return and the check for
// stuck handlers race for it, and only one may free it.
type slotState = atomic.Int32

const (
	slotTaken int32 = iota
	slotFreed       // by giving the handler up, or by its settlement
)

// stuck reports the handler. The lease manager calls it at most once, while the handler runs.
func (v *delivery[T]) stuck() {
	d := v.dispatcher
	givenUp := d.options.GiveUp && v.slot.CompareAndSwap(slotTaken, slotFreed)
	if givenUp {
		d.slots.giveUp()
	}
	d.options.OnError(&StuckError{
		Queue: d.name, ID: v.queued.ID, Cause: context.Cause(v.ctx), For: d.options.StuckAfter,
		GivenUp: givenUp, Stacks: handlerStacks(),
	})
}

// handlerStacks returns the stacks of the goroutines that run handlers.
func handlerStacks() []byte {
	all := make([]byte, 4<<20)
	all = all[:runtime.Stack(all, true)]
	var ours []byte
	for one := range bytes.SplitSeq(all, []byte("\n\n")) {
		if bytes.Contains(one, []byte("millrace/dispatcher.(*Dispatcher")) && bytes.Contains(one, []byte(".call(")) {
			ours = append(append(ours, one...), "\n\n"...)
		}
	}
	return ours[:min(len(ours), maxStacks)]
}
