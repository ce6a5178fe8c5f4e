package listener

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// tightQueue allows a number of messages a second, as the service does: a delete and an update count
// one, and a dequeue what it brings. It saves up one second's worth. A dequeue is refused only when nothing is
// left, and may leave a debt. What is refused costs nothing.
type tightQueue struct {
	queue.Queue
	rate float64

	mu      sync.Mutex
	left    float64   // guarded by mu
	updated time.Time // guarded by mu
	refused int       // requests; guarded by mu
}

func (q *tightQueue) take(op string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.left = min(q.left+now.Sub(q.updated).Seconds()*q.rate, q.rate)
	q.updated = now
	if q.left < 1 {
		q.refused++
		return &queue.Error{Op: op, Queue: q.Name(), Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy"}
	}
	q.left--
	return nil
}

func (q *tightQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	time.Sleep(time.Millisecond) // of the network
	if err := q.take("dequeue"); err != nil {
		return nil, err
	}
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.left -= float64(len(batch) - 1)
	return batch, err
}

func (q *tightQueue) Delete(ctx context.Context, l queue.Lease) error {
	time.Sleep(time.Millisecond)
	if err := q.take("delete"); err != nil {
		return err
	}
	return q.Queue.Delete(ctx, l)
}

func (q *tightQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	time.Sleep(time.Millisecond)
	if err := q.take("update"); err != nil {
		return queue.Lease{}, err
	}
	return q.Queue.Update(ctx, l, text, visibility)
}

// A queue at its limit refuses fetches and deletes alike, and a message whose delete is refused until
// its lease ends is handled again. At most one job in a thousand is, and the workers use nine tenths
// of the limit: a job that is fetched and deleted counts two.
func TestAtTheLimitOfItsQueueAListenerHandlesJobsOnce(t *testing.T) {
	for _, c := range []struct{ limit, slots, workers int }{
		{60, 64, 1}, {60, 128, 1}, {60, 256, 1},
		{80, 64, 1}, {80, 128, 1}, {80, 256, 1},
		{100, 64, 1}, {100, 128, 1}, {100, 256, 1},
		{500, 64, 5},
	} {
		t.Run(fmt.Sprintf("limit=%d/slots=%d/workers=%d", c.limit, c.slots, c.workers), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				const minutes = 5
				jobs := c.limit / 2 * 60 * minutes
				b.put(jobs)
				tight := &tightQueue{Queue: b.queue.Queue, rate: float64(c.limit), updated: time.Now()}
				var mu sync.Mutex
				runs, total := map[int]int{}, 0
				ctx, stop := context.WithCancel(b.Context())
				var running sync.WaitGroup
				for i := range c.workers {
					o := options()
					o.Concurrency, o.Seed = c.slots, uint64(i+1)
					l := New(tight, func(_ context.Context, m *Message[job]) error {
						mu.Lock()
						defer mu.Unlock()
						runs[m.Body.N]++
						total++
						return nil
					}, o)
					running.Go(func() {
						if err := l.Run(ctx); err != nil {
							b.Error(err)
						}
					})
				}
				advance(minutes * time.Minute)
				done := jobs - int(b.depth(b.queue.Queue))
				advance(minutes * time.Minute) // what is left, and what comes again
				stop()
				running.Wait()
				twice := total - len(runs)
				b.Logf("%d jobs: %d done in %d min, %d handled again (%.2f %%), %d requests refused",
					jobs, done, minutes, twice, 100*float64(twice)/float64(jobs), tight.refused)
				if twice*1000 > jobs {
					b.Errorf("%d of %d jobs handled again, want at most one in a thousand", twice, jobs)
				}
				if len(runs) != jobs || done < jobs*9/10 {
					b.Errorf("%d jobs, %d of them done in %d min, want all %d, and nine tenths", len(runs), done, minutes, jobs)
				}
			})
		})
	}
}

// A service that is too busy and says for how long gets no fetch and no delete in that time, up to
// the end of the lease: in 50 s it would get 9 fetches, or 16 deletes.
func TestAListenerWaitsAsLongAsTheServiceAsks(t *testing.T) {
	for op, want := range map[string]int{"dequeue": 3, "delete": 3} {
		bubble(t, func(b *bundle) {
			b.put(1)
			b.queue.intercept = func(did string, act func() error) error {
				if did == op && time.Since(b.begin) < 50*time.Second {
					return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503, RetryAfter: 20 * time.Second}
				}
				return act()
			}
			l := New(b.queue, nothing, fixed(time.Minute))
			b.run(l)
			advance(50 * time.Second)
			if n := len(b.queue.sent(op)); n != want {
				b.Errorf("%s: %d requests in 50 s, want %d", op, n, want)
			}
			advance(time.Minute)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Deleted] != 1 || st.Received != 1 {
				b.Errorf("%s: %d received, %d deleted, want 1 and 1", op, st.Received, st.Outcomes[Deleted])
			}
		})
	}
}

// A QueueEmpty hook that returns 0 or less polls as often as Idle.Min allows, not 1000 times a second.
func TestAHookWithoutAWaitPollsEveryIdleMin(t *testing.T) {
	for _, wait := range []time.Duration{0, -time.Second} {
		bubble(t, func(b *bundle) {
			o := options()
			o.Fetch.QueueEmpty = func(int) (time.Duration, bool) { return wait, false }
			b.run(New(b.queue, nothing, o))
			advance(10 * time.Second)
			if n := len(b.queue.sent("dequeue")); n > 101 {
				b.Errorf("a hook that returns %v: %d polls in 10 s, want at most 101", wait, n)
			}
			b.mustFinish()
		})
	}
}
