package sharded_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// S-05: a message whose response was lost goes to the same shard again, so that its duplicate is there,
// whatever the strategy, whatever was sent meanwhile, and however busy that shard is.
func TestARepeatedMessageGoesToTheSameShard(t *testing.T) {
	for _, place := range append(spreading, sharded.ByKey) {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 4, &sharded.Options{Place: place})
			key := ""
			for i := range 100 {
				b.shards[2].lose()
				var text string
				if place == sharded.ByKey {
					key = fmt.Sprint("customer-", i)
				}
				text = fmt.Sprint("job ", i)
				o := &queue.EnqueueOptions{Key: key}
				if _, err := b.Enqueue(t.Context(), text, o); err == nil {
					continue // another shard
				} else if !errors.Is(err, queue.ErrOutcomeUnknown) {
					t.Fatal(err)
				}
				for j := range 10 {
					if place != sharded.ByKey && b.send(t, fmt.Sprint("other ", i, j), key) == 2 {
						t.Fatalf("%v: a new message went to the shard that rests", place)
					}
				}
				b.shards[2].fail(queue.ErrThrottled)
				if _, err := b.Enqueue(t.Context(), text, o); !errors.Is(err, queue.ErrThrottled) {
					t.Fatalf("%v: the message that may be in the shard went elsewhere: %v", place, err)
				}
				b.shards[2].fail(nil)
				if got := b.send(t, text, key); got != 2 {
					t.Fatalf("%v: sent to shard 2 first and then to %d", place, got)
				}
				return
			}
			t.Fatalf("%v: nothing was sent to the shard", place)
		})
	}
}

// Also when another shard would have the key by now; but not when the shard takes no messages any more.
func TestARepeatedMessageStaysWhenShardsAreAdded(t *testing.T) {
	b := setup(t, 1, &sharded.Options{Place: sharded.ByKey})
	b.shards[0].lose()
	const n = 50
	for i := range n {
		if _, err := b.Enqueue(t.Context(), fmt.Sprint(i), &queue.EnqueueOptions{Key: fmt.Sprint(i)}); !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
	b.shards[0].fail(nil)
	engine := localqueue.New(nil)
	b.shards = append(b.shards, newShard(t, engine, 1))
	if err := b.Add(b.shards[1]); err != nil {
		t.Fatal(err)
	}
	for i := range n / 2 {
		if got := b.send(t, fmt.Sprint(i), fmt.Sprint(i)); got != 0 {
			t.Errorf("message %d was sent to shard 0 first and then to %d", i, got)
		}
	}
	if err := b.Remove(t.Context(), b.shards[0].Name()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := b.send(t, fmt.Sprint(i), fmt.Sprint(i)); got != 1 {
			t.Errorf("message %d was sent to the removed shard", i)
		}
	}
}

// What was accepted is forgotten: the same text may then be another message, and go anywhere.
func TestAnAcceptedMessageIsForgotten(t *testing.T) {
	b := setup(t, 2, nil)
	b.shards[0].lose()
	text := b.until(t, queue.ErrOutcomeUnknown)
	b.shards[0].fail(nil)
	seen := map[int]bool{}
	for range 4 {
		seen[b.send(t, text, "")] = true
	}
	if len(seen) != 2 {
		t.Errorf("four messages of one text are in %d shards", len(seen))
	}
}
