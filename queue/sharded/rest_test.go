package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

var spreading = []sharded.Strategy{sharded.RoundRobin, sharded.Random, sharded.LeastDepth}

// until sends new messages until one fails, and returns its text.
func (b *bundle) until(t *testing.T, kind error) string {
	t.Helper()
	for i := range 100 {
		text := fmt.Sprintf("%v %d %d", kind, i, time.Now().UnixNano())
		if _, err := b.Enqueue(t.Context(), text, nil); errors.Is(err, kind) {
			return text
		} else if err != nil {
			t.Fatal(err)
		}
	}
	t.Fatalf("no message failed with %v", kind)
	return ""
}

// S-05: what was certainly not enqueued goes elsewhere, at once, and nothing else is lost on the shard that
// failed while it rests.
func TestAShardThatFailsRests(t *testing.T) {
	for _, place := range spreading {
		for _, kind := range []error{queue.ErrThrottled, queue.ErrUnavailable, queue.ErrQueueBeingDeleted} {
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, 3, &sharded.Options{Place: place})
				b.shards[1].fail(kind)
				text := b.until(t, kind)
				if b.send(t, text, "") == 1 {
					t.Fatal("a shard that failed is no shard for a test")
				}
				tries := b.shards[1].sends.Load()
				for i := range 50 {
					b.send(t, fmt.Sprint(i), "")
				}
				if n := b.shards[1].sends.Load() - tries; n != 0 {
					t.Errorf("%v, %v: %d messages were sent to the shard that rests", place, kind, n)
				}
				if s := b.States()[1]; !s.RestsUntil.Equal(time.Now().Add(100*time.Millisecond)) || !errors.Is(s.Err, kind) {
					t.Errorf("%v: the state is %+v", place, s)
				}
				b.shards[1].fail(nil)
				time.Sleep(100 * time.Millisecond)
				for i := range 50 {
					b.send(t, fmt.Sprint("again", i), "")
				}
				if n, s := b.shards[1].sends.Load()-tries, b.States()[1]; n < 5 || s.Err != nil || !s.RestsUntil.IsZero() {
					t.Errorf("%v: %d messages were sent to the shard that works again: %+v", place, n, s)
				}
			})
		}
	}
}

// A shard that stays broken is tried by one message, every 4 s in the end.
func TestABrokenShardIsTriedByOneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, nil)
		b.shards[0].fail(queue.ErrUnavailable)
		start, failed := time.Now(), []time.Duration{}
		for time.Since(start) < 3*time.Minute {
			if _, err := b.Enqueue(t.Context(), time.Now().String(), nil); err != nil {
				failed = append(failed, time.Since(start))
			}
			time.Sleep(10 * time.Millisecond)
		}
		if len(failed) != 50 {
			t.Fatalf("tried at %v", failed)
		}
		for i := 1; i < len(failed); i++ {
			want := min(100*time.Millisecond<<min(i-1, 6), 4*time.Second)
			if got := failed[i] - failed[i-1]; got < want || got > want+20*time.Millisecond {
				t.Errorf("try %d came %v after the one before, want %v", i, got, want)
			}
		}
	})
}

// One message finds out whether the shard works again, and the others do not wait for it.
func TestOneMessageTriesAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, nil)
		b.shards[0].fail(queue.ErrThrottled)
		b.until(t, queue.ErrThrottled)
		tries, hang := b.shards[0].sends.Load(), make(chan struct{})
		b.shards[0].disturb(func(_ context.Context, send func() (queue.Message, error)) (queue.Message, error) {
			<-hang
			return send()
		})
		time.Sleep(time.Minute)
		var running sync.WaitGroup
		for i := range 20 {
			running.Go(func() { b.send(t, fmt.Sprint(i), "") })
		}
		synctest.Wait()
		time.Sleep(time.Minute) // for longer than it rested
		for i := range 20 {
			running.Go(func() { b.send(t, fmt.Sprint("later", i), "") })
		}
		synctest.Wait()
		if n := b.shards[0].sends.Load() - tries; n != 2 {
			t.Errorf("%d messages try the shard, want 2, a minute apart", n)
		}
		close(hang)
		running.Wait()
		if s := b.States()[0]; s.Err != nil || !s.RestsUntil.IsZero() {
			t.Errorf("after the try succeeded: %+v", s)
		}
	})
}

// Requests that were under way together count as one failure.
func TestFailuresAtOneTimeCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 1, nil)
		b.shards[0].disturb(func(context.Context, func() (queue.Message, error)) (queue.Message, error) {
			time.Sleep(time.Second)
			return queue.Message{}, queue.ErrThrottled
		})
		var running sync.WaitGroup
		for i := range 30 {
			running.Go(func() { _, _ = b.Enqueue(t.Context(), fmt.Sprint(i), nil) })
		}
		running.Wait()
		if s := b.States()[0]; !s.RestsUntil.Equal(time.Now().Add(100 * time.Millisecond)) {
			t.Errorf("it rests for %v", time.Until(s.RestsUntil))
		}
	})
}

// A message is sent also when no shard seems to work.
func TestShardsThatAllRestAreTriedAllTheSame(t *testing.T) {
	for _, place := range spreading {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 3, &sharded.Options{Place: place})
			for _, s := range b.shards {
				s.fail(queue.ErrThrottled)
			}
			for i := range 100 {
				if _, err := b.Enqueue(t.Context(), fmt.Sprint(i), nil); !errors.Is(err, queue.ErrThrottled) {
					t.Fatalf("%v: %v", place, err)
				}
			}
			for i, s := range b.shards {
				if n := s.sends.Load(); n < 20 {
					t.Errorf("%v: shard %d was tried %d times", place, i, n)
				}
				s.fail(nil)
			}
			b.send(t, "works", "")
		})
	}
}

// S-05: a key keeps its shard, also while that fails.
func TestAKeyStaysAtAShardThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 4, &sharded.Options{Place: sharded.ByKey})
		home := b.send(t, "first", "customer-7")
		b.shards[home].fail(queue.ErrThrottled)
		for i := range 10 {
			if _, err := b.Enqueue(t.Context(), fmt.Sprint(i), &queue.EnqueueOptions{Key: "customer-7"}); !errors.Is(err, queue.ErrThrottled) {
				t.Fatalf("got %v, want that the shard is busy", err)
			}
		}
		b.shards[home].fail(nil)
		if got := b.send(t, "last", "customer-7"); got != home {
			t.Errorf("it moved from %d to %d", home, got)
		}
	})
}

// What would meet every message must be seen, not hidden by the shards that still work; nor does the end of
// the caller's context say anything of a shard.
func TestMistakesAreNotHidden(t *testing.T) {
	for _, kind := range []error{queue.ErrQueueMissing, queue.ErrUnauthorized, queue.ErrInvalid, queue.ErrTooLarge} {
		b := setup(t, 2, nil)
		b.shards[0].fail(kind)
		failed := 0
		for i := range 10 {
			if _, err := b.Enqueue(t.Context(), fmt.Sprint(i), nil); errors.Is(err, kind) {
				failed++
			}
		}
		if failed != 5 {
			t.Errorf("%v: %d of 10 messages failed, want those of the shard", kind, failed)
		}
	}
	b := setup(t, 2, nil)
	ctx, cancel := context.WithCancel(t.Context())
	b.shards[0].disturb(func(ctx context.Context, _ func() (queue.Message, error)) (queue.Message, error) {
		cancel()
		return queue.Message{}, &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: ctx.Err()}
	})
	for i := range 2 {
		_, _ = b.Enqueue(ctx, fmt.Sprint(i), nil)
	}
	if s := b.States()[0]; s.Err != nil {
		t.Errorf("after a cancelled call: %+v", s)
	}
}

func TestErrorsNameTheShard(t *testing.T) {
	b := setup(t, 1, nil)
	for _, err := range []error{errors.New("plain"), &queue.Error{Kind: queue.ErrThrottled}} {
		b.shards[0].disturb(func(context.Context, func() (queue.Message, error)) (queue.Message, error) {
			return queue.Message{}, err
		})
		_, got := b.Enqueue(t.Context(), "text", nil)
		if e := (*queue.Error)(nil); !errors.As(got, &e) || e.Queue != b.shards[0].Name() || e.Op != "enqueue" {
			t.Errorf("%v: got %v", err, got)
		}
	}
}
