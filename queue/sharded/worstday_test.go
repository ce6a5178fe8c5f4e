package sharded_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// answers makes every Enqueue take so long, as a client with a time-out of 10 s has it; negative: for ever.
func (d *disturbed) answers(after time.Duration) {
	d.disturb(func(ctx context.Context, send func() (queue.Message, error)) (queue.Message, error) {
		timeout := time.NewTimer(10 * time.Second)
		defer timeout.Stop()
		answer := timeout.C
		if after >= 0 {
			t := time.NewTimer(after)
			defer t.Stop()
			answer = t.C
		}
		select {
		case <-answer:
			if after >= 0 {
				return send()
			}
		case <-timeout.C:
		case <-ctx.Done():
		}
		return queue.Message{}, &queue.Error{Op: "enqueue", Queue: d.Name(), Kind: queue.ErrOutcomeUnknown, Detail: "no response within 10s"}
	})
}

// rates sends with that many senders, each one job after another, and returns how many jobs were sent in
// each second.
func (b *bundle) rates(t *testing.T, seconds, senders int) (sent []int, failed int) {
	p := producer.New[int](b.Queue, nil)
	ctx, stop := context.WithTimeout(t.Context(), time.Duration(seconds)*time.Second)
	defer stop()
	perSecond := make([]atomic.Int64, seconds+1)
	var failures atomic.Int64
	begin := time.Now()
	var running sync.WaitGroup
	for n := range senders {
		running.Go(func() {
			for i := n; ctx.Err() == nil; i += senders {
				if _, err := p.Send(context.WithoutCancel(ctx), i, nil); err != nil {
					failures.Add(1)
				} else if at := int(time.Since(begin) / time.Second); at < len(perSecond) {
					perSecond[at].Add(1)
				}
			}
		})
	}
	<-ctx.Done()
	for _, s := range b.shards {
		s.answers(50 * time.Millisecond)
	}
	running.Wait()
	for i := range seconds {
		sent = append(sent, int(perSecond[i].Load()))
	}
	return sent, int(failures.Load())
}

// average returns the average of numbers.
func average(of []int) (n int) {
	for _, one := range of {
		n += one
	}
	return n / len(of)
}

// One of four shards hangs, or takes a second where the others take 50 ms. From the first time-out on, 10 s
// after that began, the senders keep 70 % of what the other three carry, and no send fails. When it is well
// again it is used within 5 s; by few senders, which would wait for it too often, within a minute.
func TestAHungOrSlowShardCostsLittle(t *testing.T) {
	const ill, well, end = 10, 80, 150 // seconds
	for _, senders := range []int{1, 4, 16} {
		for _, place := range spreading[:1+senders/8] { // few senders leave nothing to choose
			for name, answer := range map[string]time.Duration{"hangs": -1, "is slow": time.Second} {
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, 4, &sharded.Options{Place: place})
					for _, s := range b.shards {
						s.answers(50 * time.Millisecond)
					}
					time.AfterFunc(ill*time.Second, func() { b.shards[2].answers(answer) })
					time.AfterFunc(well*time.Second, func() { b.shards[2].answers(50 * time.Millisecond) })
					usedAfter := 60 * time.Second
					if senders >= 16 {
						usedAfter = 5 * time.Second
					}
					var healed atomic.Int64
					time.AfterFunc(well*time.Second+usedAfter, func() { healed.Store(b.shards[2].sends.Load()) })
					sent, failed := b.rates(t, end, senders)
					before, first, during := average(sent[2:ill]), average(sent[ill:ill+10]), average(sent[ill+10:well])
					after, all := b.shards[2].sends.Load()-healed.Load(), int64(average(sent[end-5:]))*(end-well-int64(usedAfter/time.Second))
					t.Logf("%d senders, %v, one %s: %d/s before, %d/s for 10 s, then %d/s, %d failed", senders, place, name, before, first, during, failed)
					if during*10 < before*7 || failed > 0 {
						t.Errorf("%d senders, %v, one %s: got %d sends a second and %d failures, want 70 %% of %d and none", senders, place, name, during, failed, before)
					}
					if after < all/5 {
						t.Errorf("%d senders, %v, one %s: the healed shard got %d of %d sends", senders, place, name, after, all)
					}
				})
			}
		}
	}
}

// A sequence goes on beside a shard that hangs, and every job of it is sent.
func TestASequenceIsSentBesideAHungShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 10000
		b := setup(t, 4, nil)
		for _, s := range b.shards {
			s.answers(10 * time.Millisecond)
		}
		b.shards[2].answers(-1)
		begin := time.Now()
		results, err := producer.New[int](b.Queue, nil).SendAll(t.Context(), make([]int, jobs), &producer.SendAllOptions[int]{Concurrency: 16})
		if err != nil || len(results) != jobs {
			t.Errorf("got %d results and error %v, want %d and none", len(results), err, jobs)
		}
		t.Logf("%d of %d jobs sent in %v", len(results), jobs, time.Since(begin).Round(time.Second))
	})
}

// Where the key decides the shard, the jobs of the others go on.
func TestAHungShardHoldsOnlyItsKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 4, &sharded.Options{Place: sharded.ByKey})
		key := func(shard int) string {
			for i := 0; ; i++ {
				k := fmt.Sprint("customer-", shard, "-", i)
				if b.ShardsOf(k)[0].Name() == b.shards[shard].Name() {
					return k
				}
			}
		}
		keys := []string{key(0), key(1), key(2), key(3)}
		b.shards[2].answers(-1)
		sent, failed := 0, 0
		for n := range 16 {
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			_, err := b.Enqueue(ctx, fmt.Sprint(n), &queue.EnqueueOptions{Key: keys[n%4]})
			stop()
			if n%4 == 2 && err != nil {
				failed++
			} else if err == nil {
				sent++
			}
		}
		if sent != 12 || failed != 4 {
			t.Errorf("got %d sends and %d failures, want 12 of the other shards and 4", sent, failed)
		}
	})
}
