package beacon

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// A peek shows 32 messages, so a control queue has room for few reports. The others are in queues beside it, control-1 to
// control-63 beside control, on two levels: a level is used when the one before has no room. Viewers look at a level when
// they see that the one before is half full, so a small fleet costs them one request.
const (
	levels = 3  // the control queue is the first
	room   = 25 // reports in a queue; the rest of a peek is for those of killed instances
)

// firstOf returns the number of the first queue on a level: 0, 1, 8, 64.
func firstOf(level int) int {
	if level == 0 {
		return 0
	}
	return 1 << (3 * (level - 1))
}

// nth returns a queue by its number; 0 is the control queue.
func nth(control queue.Queue, n int) queue.Queue {
	if n == 0 {
		return control
	}
	return control.Sibling(fmt.Sprintf("-%d", n))
}

// spot is a queue on its level.
type spot struct {
	level int
	queue queue.Queue
}

// sweep deletes the messages that are dead, of those that a peek has shown. Only a dequeue gives a receipt to delete with, and it
// takes the messages that nobody has updated for longest: those up to the first that is alive, or up to the last that is dead if
// the peek was full. An instance whose message it takes puts another. What fails is left to expire.
func sweep(ctx context.Context, q queue.Queue, shown []queue.Message, dead func(queue.Message) bool) {
	n := 0
	for i, m := range shown {
		if dead(m) {
			n = i + 1
		} else if len(shown) < queue.MaxBatch {
			break
		}
	}
	if n == 0 {
		return
	}
	taken, err := q.Dequeue(ctx, n, time.Second)
	if err != nil {
		return
	}
	for _, m := range taken {
		if dead(m) && q.Delete(ctx, m.Lease) != nil {
			return
		}
	}
}
