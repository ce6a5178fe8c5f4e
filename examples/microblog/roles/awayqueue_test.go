package roles

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// fullQueue is a queue that takes no messages for a while.
type fullQueue struct {
	queue.Queue
	takes *atomic.Bool
}

func (q *fullQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if !q.takes.Load() {
		return queue.Message{}, queue.ErrUnavailable
	}
	return q.Queue.Enqueue(ctx, text, o)
}

// A queue that takes no second deletion for two days makes no message poison either.
func TestAQueueThatTakesNothingIsWaitedFor(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates two days")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.request(w.create(3))
		var takes atomic.Bool
		p := w.start(&fullQueue{w.queue, &takes}, w.site(nil))
		time.Sleep(48 * time.Hour)
		if n, bad := w.depth(""), w.depth(poison.Suffix); n != 1 || bad != 0 {
			t.Errorf("got %d messages and %d poison ones, want one that waits", n, bad)
		}
		takes.Store(true)
		w.settle()
		p.end(false)
		w.mustBeRight("in the end")
	})
}
