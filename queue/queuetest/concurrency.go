package queuetest

import (
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/queue"
)

var concurrencyTests = []test{
	{"NoMessageTwiceWhileLeased", func(e *env) {
		const producers, consumers, messages = 8, 16, 200
		e.create()
		var all sync.WaitGroup
		for p := range producers {
			all.Go(func() {
				for i := range messages / producers {
					if _, err := e.q.Enqueue(e.ctx, strconv.Itoa(p*messages/producers+i), nil); err != nil {
						e.Error(err)
					}
				}
			})
		}
		all.Wait()
		var mu sync.Mutex
		taken := make(map[queue.ID]queue.Message)
		for range consumers {
			all.Go(func() {
				for {
					batch, err := e.q.Dequeue(e.ctx, 5, long)
					if err != nil {
						e.Error(err)
						return
					}
					if len(batch) == 0 {
						return
					}
					for _, m := range batch {
						mu.Lock()
						if _, twice := taken[m.ID]; twice || m.DequeueCount != 1 {
							e.Errorf("message %q: got delivery %d, delivered before %v; want one delivery", m.Text, m.DequeueCount, twice)
						}
						taken[m.ID] = m
						mu.Unlock()
						if err := e.q.Delete(e.ctx, m.Lease); err != nil {
							e.Error(err)
						}
					}
				}
			})
		}
		all.Wait()
		if len(taken) != messages {
			e.Errorf("messages delivered: got %d, want %d", len(taken), messages)
		}
		e.depth(0, "after all were deleted")
	}},
	{"OneOfManyDeletesWins", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		won := e.race(func() error { return e.q.Delete(e.ctx, m.Lease) })
		if won != 1 {
			e.Errorf("successful deletes of one message: got %d, want 1", won)
		}
		e.depth(0, "after the race")
	}},
	{"OneOfManyUpdatesWins", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		won := e.race(func() error { _, err := e.q.Update(e.ctx, m.Lease, "y", long); return err })
		if won != 1 {
			e.Errorf("successful updates with one receipt: got %d, want 1", won)
		}
	}},
}

// race runs an operation eight times concurrently and returns how many succeeded. The others must
// have lost the lease.
func (e *env) race(do func() error) int {
	var won atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := do(); err == nil {
				won.Add(1)
			} else if !errors.Is(err, queue.ErrLeaseLost) {
				e.Errorf("loser of a race: got %v, want ErrLeaseLost", err)
			}
		})
	}
	all.Wait()
	return int(won.Load())
}
