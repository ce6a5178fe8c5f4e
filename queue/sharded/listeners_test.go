package sharded_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
	"github.com/millrace/millrace/wakeup"
)

// Each shard has a listener that sleeps without a loop. A job wakes that of its shard at once and no other,
// also when the response to its request was lost.
func TestAJobWakesTheListenerOfItsShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, nil)
		var bus wakeup.Bus
		var handled [2]atomic.Int64
		listeners := make([]*listener.Listener[string], 2)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i, s := range b.shards {
			listeners[i] = listener.New(s.Queue, func(context.Context, *listener.Message[string]) error {
				handled[i].Add(1)
				return nil
			}, &listener.Options[string]{Wakeups: &bus, Logger: slog.New(slog.DiscardHandler)})
			running.Go(func() {
				if err := listeners[i].Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		p := producer.New(b, &producer.Options[string]{Wakeups: &bus})
		send := func(what string, lost bool) {
			t.Helper()
			polls, before := [2]int64{listeners[0].State().Polls, listeners[1].State().Polls}, handled[0].Load()+handled[1].Load()
			sent, err := p.Send(t.Context(), what, nil)
			if (err != nil) != lost {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // no poll comes by itself so soon
			if n := handled[0].Load() + handled[1].Load() - before; n < 1 {
				t.Errorf("%s: handled %d times", what, n)
			}
			if !lost {
				if other := 1 - b.index(t, sent.Queue); listeners[other].State().Polls != polls[other] {
					t.Errorf("%s: the listener of the other shard has polled", what)
				}
			}
		}
		for i := range 6 {
			send(fmt.Sprint("job ", i), false)
			time.Sleep(100 * time.Millisecond)
		}
		if handled[0].Load() != 3 || handled[1].Load() != 3 {
			t.Errorf("handled %d and %d", handled[0].Load(), handled[1].Load())
		}
		for _, s := range b.shards {
			s.lose()
		}
		p = producer.New(b, &producer.Options[string]{Wakeups: &bus, Timeout: time.Millisecond})
		send("without a response", true)
		stop()
		running.Wait()
	})
}

// The combination that a program has: keys, wake-ups, retries and two accounts.
func TestASendThroughABusyShardGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, &sharded.Options{Place: sharded.LeastDepth})
		b.shards[0].fail(queue.ErrThrottled)
		p := producer.New[string](b, nil)
		start := time.Now()
		for i := range 10 {
			sent, err := p.Send(t.Context(), fmt.Sprint(i), nil)
			if err != nil || sent.Queue != b.shards[1].Name() || sent.MaybeTwice {
				t.Errorf("got %+v, %v", sent, err)
			}
		}
		if took := time.Since(start); took > time.Second { // a wait for each try, of which there are four at most
			t.Errorf("ten jobs took %v", took)
		}
	})
}

// A message that has failed at a shard goes elsewhere when it is sent again, however long its sender waits in between, unless
// nobody else has tried the shard for a while.
func TestAMessageThatFailedAtAShardDoesNotTryItAgain(t *testing.T) {
	for _, wait := range []time.Duration{10 * time.Millisecond, 150 * time.Millisecond, time.Second, 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 2, nil)
			b.shards[0].fail(queue.ErrThrottled)
			failed := 0
			for i := range 20 {
				for before := failed; ; time.Sleep(wait) {
					if _, err := b.Enqueue(t.Context(), fmt.Sprint(i), nil); err == nil {
						break
					}
					if failed++; failed > before+1 {
						t.Fatalf("waits of %v: job %d failed twice", wait, i)
					}
				}
			}
			if failed == 0 {
				t.Errorf("waits of %v: no job tried the shard", wait)
			}
			b.shards[0].fail(nil)
			for begin := time.Now(); b.send(t, "the same", "") != 0; time.Sleep(100 * time.Millisecond) {
				if time.Since(begin) > 5*time.Second {
					t.Fatal("a shard that works again is not used within 5 s")
				}
			}
		})
	}
}

// A shard that is only late is tried by any message when that is due, even by an empty one.
func TestAnEmptyMessageTriesALateShard(t *testing.T) {
	sends := map[string]int{}
	for _, text := range []string{"", "a"} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 2, nil)
			b.shards[0].disturb(func(_ context.Context, send func() (queue.Message, error)) (queue.Message, error) {
				time.Sleep(2 * time.Second)
				return send()
			})
			for b.send(t, "slow", "") != 0 {
			}
			b.shards[0].disturb(nil)
			for b.send(t, text, "") != 0 {
				sends[text]++
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	if sends[""] != sends["a"] || sends["a"] == 0 {
		t.Errorf("got %d empty messages before one tries the shard, want %d as of others", sends[""], sends["a"])
	}
}

// S-05: a lost response means two messages of one job in one shard, where its listener can tell.
func TestARepeatedSendIsASecondMessageInTheSameShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 4, nil)
		for _, s := range b.shards {
			s.disturb(func(_ context.Context, send func() (queue.Message, error)) (queue.Message, error) {
				for _, other := range b.shards {
					other.disturb(nil)
				}
				_, err := send()
				if err == nil {
					err = queue.ErrOutcomeUnknown
				}
				return queue.Message{}, err
			})
		}
		sent, err := producer.New[string](b, nil).Send(t.Context(), "job", nil)
		if err != nil || !sent.MaybeTwice {
			t.Fatalf("got %+v, %v", sent, err)
		}
		for i, n := range b.counts(t) {
			want := int64(0)
			if b.shards[i].Name() == sent.Queue {
				want = 2
			}
			if n != want {
				t.Errorf("shard %d has %d messages, want %d", i, n, want)
			}
		}
	})
}
