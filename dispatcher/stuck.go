package dispatcher

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
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

	// Stacks are those of all goroutines that run handlers of the queue in this process, and of
	// the goroutines that these have started. Equal stacks are shown once, with their number.
	// They may be truncated.
	Stacks []byte
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

// stuck reports the handler, or the download of its body. The lease manager calls it at most once,
// while that runs, or once for each item of a group that is stuck after another has returned.
func (v *delivery) stuck() {
	d := v.dispatcher
	givenUp := d.options.GiveUp && v.running.slot.CompareAndSwap(slotTaken, slotFreed)
	if givenUp {
		d.slots.giveUp()
	}
	cause := context.Cause(v.running.ctx.Context)
	if cause == nil { // that of an item has ended
		cause = ErrTimeout
	}
	d.options.OnError(&StuckError{
		Queue: d.name, ID: v.queued.ID, Cause: cause, For: d.options.StuckAfter,
		GivenUp: givenUp, Stacks: handlerStacks(d.name),
	})
}

// queueLabel is the key of the goroutine label that names the queue whose handler a goroutine
// runs. Goroutines that the handler starts inherit it, and every profile shows it.
const queueLabel = "millrace.queue"

func withQueueLabel(ctx context.Context, of queue.Name) context.Context {
	return pprof.WithLabels(ctx, pprof.Labels(queueLabel, of.String()))
}

// handlerStacks returns the stacks of the goroutines that have the queue's label.
func handlerStacks(of queue.Name) []byte {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a buffer does not fail
	label := fmt.Appendf(nil, "%q:%q", queueLabel, of.String())
	var ours []byte
	for one := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		if bytes.Contains(one, label) {
			ours = append(append(ours, one...), "\n\n"...)
		}
	}
	return ours[:min(len(ours), maxStacks)]
}
