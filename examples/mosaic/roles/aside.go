package roles

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// aside is a queue from which nothing is dequeued for a while after a message of another store was
// given back. Otherwise this program, which polls often because it finds messages, would mostly get that
// message again before the program that it belongs to.
type aside struct {
	queue.Queue

	mu    sync.Mutex
	until time.Time // when the next dequeue may be; guarded by mu
}

// maxLeave is the longest time for which a message of another store is given back.
const maxLeave = time.Minute

// leave returns for how long a message of another store is given back. The first deliveries, and then
// every eighth, are given back for a second, and this program stands aside for longer. The others are
// given back for long, because the message may have no owner any more, and this program has its own work.
func (a *aside) leave(deliveries int64) time.Duration {
	if deliveries > 8 && deliveries%8 != 0 {
		return min(time.Second*time.Duration(deliveries), maxLeave)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// Longer than the others wait between polls, and random, so that two programs do not keep step. Much
	// shorter than a lease, because the lease of what is dequeued next is counted from the call.
	a.until = time.Now().Add(2*time.Second + rand.N(time.Second))
	return time.Second
}

// Dequeue waits until the time to stand aside is over.
func (a *aside) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	for {
		a.mu.Lock()
		wait := time.Until(a.until)
		a.mu.Unlock()
		if wait <= 0 {
			return a.Queue.Dequeue(ctx, n, visibility)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
