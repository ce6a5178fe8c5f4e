package paired_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/sharded"
)

// throttling is a queue that accepts 40 messages a second, saves up those of a second, and answers in 10 ms.
type throttling struct {
	queue.Queue
	mu       sync.Mutex
	tokens   float64   // guarded by mu
	at       time.Time // guarded by mu
	accepted int       // guarded by mu
}

const perSecond = 40

func (q *throttling) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	time.Sleep(10 * time.Millisecond)
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	q.tokens = min(perSecond, q.tokens+now.Sub(q.at).Seconds()*perSecond)
	q.at = now
	if q.tokens < 1 {
		return queue.Message{}, throttled
	}
	q.tokens--
	q.accepted++
	return queue.Message{Queue: q.Name()}, nil
}

// carried counts what throttling queues accept in two minutes.
func carried(t *testing.T, isPaired bool, shards, senders int, place sharded.Strategy) (n int) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		var all []*throttling
		var queues []queue.Queue
		for i := range shards {
			one := &throttling{Queue: b.west.queue(fmt.Sprint("orders-", i)), at: time.Now(), tokens: perSecond}
			all, queues = append(all, one), append(queues, one)
			if isPaired {
				q := must(paired.New(one, b.east.queue(fmt.Sprint("orders-", i)), &paired.Options{Backlogs: 1}))
				defer q.Close()
				b.ok(q.Pair(b.ctx))
				queues[i] = q
			}
		}
		to, err := sharded.New(queues, &sharded.Options{Seed: 1, Place: place})
		b.ok(err)
		ctx, stop := context.WithTimeout(b.ctx, 2*time.Minute)
		defer stop()
		jobs := producer.New[string](to, nil)
		var sends sync.WaitGroup
		for sender := range senders {
			sends.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					id := fmt.Sprint(sender, "-", i)
					_, _ = jobs.Send(ctx, "job", &producer.SendOptions{JobID: id, Key: id}) // fails, sometimes
				}
			})
		}
		sends.Wait()
		for _, one := range all {
			n += one.accepted
		}
	})
	return n
}

// pairs of queues that throttle carry 90 % of what the queues carry alone. When a refused message rested for
// exactly 10 s, and the others went on, one pair carried 4.1 messages a second and four carried 16.4.
func TestThrottlingCostsATenthAtMost(t *testing.T) {
	for _, c := range []struct {
		shards, senders int
		place           sharded.Strategy
	}{
		{1, 16, sharded.RoundRobin},
		{1, 64, sharded.RoundRobin},
		{4, 16, sharded.RoundRobin},
		{4, 128, sharded.ByKey},
	} {
		alone, pairs := carried(t, false, c.shards, c.senders, c.place), carried(t, true, c.shards, c.senders, c.place)
		what := fmt.Sprintf("%d shards, %v, %d senders", c.shards, c.place, c.senders)
		t.Logf("%s: %.1f messages a second alone, %.1f paired", what, float64(alone)/120, float64(pairs)/120)
		if pairs*10 < alone*9 {
			t.Errorf("%s: got %d messages, want 90 %% of %d", what, pairs, alone)
		}
	}
}

// while a queue refuses everything, one message at a time finds out whether it accepts again, after
// 100 ms and then after twice as long, up to 5 s. The others wait for that, and none is refused.
func TestOneProbeAtATimeMeetsABusyQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		b.west.fault("orders", fault{err: throttled})
		var sends sync.WaitGroup
		sends.Go(func() { b.sends("first", "west") })
		synctest.Wait()
		for i := range 200 {
			sends.Go(func() { b.sends(fmt.Sprint("job-", i), "west") })
		}
		time.Sleep(35 * time.Second)
		if n := b.west.called("send"); n != 12 {
			t.Errorf("requests in 35 s: got %d, want 12, after 0, .1, .3, .7, 1.5, 3.1, 6.3, 11.3, 16.3, 21.3, 26.3 and 31.3 s", n)
		}
		b.west.fault("orders", fault{})
		sends.Wait()
		if n := b.west.called("send"); n != 201 {
			t.Errorf("requests afterwards: got %d, want 201", n)
		}
	})
}

// what waits for a busy queue reaches the secondary account when the queue fails, however its probe ends.
func TestWhatWaitsForABusyQueueIsDivertedWhenItFails(t *testing.T) {
	for name, f := range map[string]fault{"fails": {err: unavailable}, "hangs": {hangs: true}} {
		for _, busy := range []time.Duration{50 * time.Millisecond, 4 * time.Second, 9 * time.Second} {
			t.Run(fmt.Sprint(name, " after ", busy), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					b := setup(t, paired.Options{})
					b.west.fault("orders", fault{err: throttled})
					time.AfterFunc(busy, func() { b.west.fault("orders", f) })
					if w := b.sendThrough(300, after(0)); w.failed != 0 {
						t.Errorf("got %d sends that failed, want 0", w.failed)
					}
					if s := b.queue.State(); s.Diverted != 300 {
						t.Errorf("got %+v, want all 300 diverted", s)
					}
				})
			})
		}
	}
}

// A probe whose sender gives up says nothing, and the next message is the probe. One that hangs holds the others for
// a second.
func TestAProbeThatSaysNothingIsFollowedByAnother(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		refuse := func() {
			b.west.fault("orders", fault{err: throttled})
			ctx, cancel := context.WithTimeout(b.ctx, time.Second)
			defer cancel()
			if _, err := b.queue.Enqueue(ctx, "refused", nil); !errors.Is(err, queue.ErrThrottled) {
				t.Errorf("got %v, want %v", err, queue.ErrThrottled)
			}
			b.west.fault("orders", fault{hangs: true})
			b.west.called("send")
		}
		refuse()
		ctx, cancel := context.WithCancel(b.ctx)
		var sends sync.WaitGroup
		sends.Go(func() {
			if _, err := b.queue.Enqueue(ctx, "given up", nil); err == nil {
				t.Error("got no error of a send that was cancelled")
			}
		})
		synctest.Wait()
		begin := time.Now()
		for i := range 10 {
			sends.Go(func() { b.sends(fmt.Sprint("job-", i), "west") })
		}
		synctest.Wait()
		if n := b.west.called("send"); n != 1 {
			t.Errorf("got %d requests, want the probe alone", n)
		}
		b.west.fault("orders", fault{})
		cancel()
		sends.Wait()
		if took := time.Since(begin); took >= 100*time.Millisecond {
			t.Errorf("the others waited for %v after the end of the probe", took)
		}

		refuse()
		sends.Go(func() { b.sends("hangs", "east") })
		synctest.Wait()
		b.west.fault("orders", fault{})
		begin = time.Now()
		b.sends("follows", "west")
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the next message waited for %v, want a second", took)
		}
		sends.Wait()
	})
}

// A message that waits for others until its deadline says so. One with a short deadline is sent when the queue accepts again.
func TestAMessageThatWaitsForABusyQueueInVainSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{})
		b.west.fault("orders", fault{err: throttled})
		for i := range 3 { // the first one, and the probes after 100 and 300 ms
			go func() { _, _ = b.queue.Enqueue(b.ctx, fmt.Sprint("refused-", i), nil) }()
			synctest.Wait()
		}
		time.Sleep(310 * time.Millisecond)
		b.west.called("send")
		ctx, cancel := context.WithTimeout(b.ctx, 500*time.Millisecond)
		defer cancel()
		_, err := b.queue.Enqueue(ctx, "in vain", nil)
		if !errors.Is(err, queue.ErrThrottled) || !strings.Contains(err.Error(), "nothing was sent in time") || !strings.Contains(err.Error(), "west/orders") {
			t.Errorf("got %v, want that the queue is busy and nothing was sent in time", err)
		}
		if n := b.west.called("send"); n != 0 {
			t.Errorf("got %d requests, want 0", n)
		}
		b.west.fault("orders", fault{})
		ctx, cancel = context.WithTimeout(b.ctx, 500*time.Millisecond)
		defer cancel()
		if m, err := b.queue.Enqueue(ctx, "in a hurry", nil); err != nil || m.Queue.Account != "west" {
			t.Errorf("got %v and %v, want it in west", m.Queue, err)
		}
		ctx, cancel = context.WithCancel(b.ctx)
		cancel()
		if _, err := b.queue.Enqueue(ctx, "cancelled", nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
		time.Sleep(time.Minute) // the refused messages
	})
}

// The sends end before they are sent, while they rest, or while they wait for their turn after that.
func TestASendThatEndsWhileTheQueueIsBusySaysSo(t *testing.T) {
	for _, after := range []time.Duration{5 * time.Second, 12 * time.Second, 14 * time.Second} {
		bubble(t, func(t *testing.T) {
			b := setup(t, paired.Options{})
			b.west.fault("orders", fault{err: throttled})
			ctx, cancel := context.WithCancel(b.ctx)
			var sends sync.WaitGroup
			for i := range 20 {
				sends.Go(func() {
					if _, err := b.queue.Enqueue(ctx, fmt.Sprint(i), nil); !errors.Is(err, context.Canceled) {
						t.Errorf("after %v: got %v, want %v", after, err, context.Canceled)
					}
				})
			}
			time.Sleep(after)
			cancel()
			sends.Wait()
		})
	}
}

// A failover lets those go who wait for a busy queue. A refusal of an earlier request does not hold later messages, and
// neither does the end of a busy time.
func TestNoMessageWaitsForAQueueThatIsNotBusy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, paired.Options{FailoverInterval: -1})
		var sends sync.WaitGroup
		begin := time.Now()
		after := func(want time.Duration) {
			t.Helper()
			if took := time.Since(begin); took != want {
				t.Errorf("it took %v since the begin, want %v", took, want)
			}
		}
		b.west.fault("orders", fault{err: throttled, takes: 500 * time.Millisecond})
		sends.Go(func() { b.sends("slow", "west") })
		synctest.Wait()
		b.west.fault("orders", fault{err: throttled})
		sends.Go(func() { b.sends("refused", "west") })
		synctest.Wait()
		b.west.fault("orders", fault{})
		b.sends("probe", "west")
		after(100 * time.Millisecond)
		time.Sleep(450 * time.Millisecond) // the slow one is refused
		b.sends("later", "west")
		after(550 * time.Millisecond)
		for i := range 1000 {
			sends.Go(func() { b.sends(fmt.Sprint("many-", i), "west") })
		}
		synctest.Wait()
		if n := b.west.called("send"); n != 1004 {
			t.Errorf("got %d requests immediately, want all 1004", n)
		}
		sends.Wait() // those that were refused rest

		begin = time.Now()
		b.west.fault("orders", fault{err: unavailable, takes: 2 * time.Second})
		sends.Go(func() { b.sends("fails", "east") })
		synctest.Wait()
		b.west.fault("orders", fault{err: throttled})
		for i := range 6 { // probes until 1.5 s, and the last one waits until 3.1 s
			sends.Go(func() { b.sends(fmt.Sprint("waits-", i), "east") })
		}
		time.Sleep(1900 * time.Millisecond)
		sends.Go(func() {
			b.sends("last", "east")
			after(2 * time.Second)
		})
		sends.Wait()
	})
}

// moody is a queue that refuses one message in a hundred, however few come, and answers in 10 ms.
type moody struct {
	queue.Queue
	mu   sync.Mutex
	dice *rand.Rand // guarded by mu
}

func (q *moody) Enqueue(context.Context, string, *queue.EnqueueOptions) (queue.Message, error) {
	time.Sleep(10 * time.Millisecond)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dice.IntN(100) == 0 {
		return queue.Message{}, throttled
	}
	return queue.Message{Queue: q.Name()}, nil
}

// A queue that refuses few messages, at any rate, has no lower limit: no other message waits for much longer than a
// second. With the rate alone 4,799 of these sends failed.
func TestFewRefusalsDoNotHoldTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := unpaired(t, paired.Options{})
		one := &moody{Queue: b.west.queue("orders"), dice: rand.New(rand.NewPCG(1, 1))}
		q := must(paired.New(one, b.east.queue("orders"), &paired.Options{Backlogs: 1}))
		defer q.Close()
		b.ok(q.Pair(b.ctx))
		jobs := producer.New[string](q, nil)
		var failed, slow atomic.Int64
		var sends sync.WaitGroup
		const n = 6_000
		for range n {
			sends.Go(func() {
				begin := time.Now()
				if _, err := jobs.Send(b.ctx, "job", nil); err != nil {
					failed.Add(1)
				}
				if time.Since(begin) > 2*time.Second {
					slow.Add(1)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		sends.Wait()
		t.Logf("of %d sends %d failed and %d took over 2 s", n, failed.Load(), slow.Load())
		if failed.Load() > n/1000 || slow.Load() > n/50 {
			t.Errorf("got %d that failed and %d that took over 2 s, want hardly any, and at most 2 %%", failed.Load(), slow.Load())
		}
	})
}
