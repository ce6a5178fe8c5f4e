package sharded_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
	engine := must(localqueue.New(nil))
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

// A sender is told that two shards may have its message, however often it was sent again and wherever.
func TestASenderIsToldOfTwoShards(t *testing.T) {
	for name, then := range map[string]func(t *testing.T, b *bundle, first, second int, text string){
		"the second one has it": func(*testing.T, *bundle, int, int, string) {},
		"the second one loses a response": func(t *testing.T, b *bundle, _, second int, text string) {
			b.shards[second].lose()
			if _, err := b.Enqueue(t.Context(), text, nil); !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
			b.shards[second].disturb(nil)
		},
		"the first one is removed": func(t *testing.T, b *bundle, first, _ int, _ string) {
			if err := b.Remove(t.Context(), b.shards[first].Name()); err != nil {
				t.Fatal(err)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, 2, nil)
			for _, s := range b.shards {
				s.answers(10 * time.Millisecond)
			}
			for i := range 2 {
				b.send(t, fmt.Sprint(i), "")
			}
			first := b.send(t, "where", "") ^ 1 // round robin: the next one goes to the other
			b.shards[first].answers(-1)
			if _, err := b.Enqueue(t.Context(), "text", nil); !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Fatalf("%s: got %v from a shard that hangs", name, err)
			}
			then(t, b, first, first^1, "text")
			if m, err := b.Enqueue(t.Context(), "text", nil); err != nil || !m.MaybeTwice || b.index(t, m.Queue) == first {
				t.Errorf("%s: got %+v and %v, want it in the other shard, and perhaps twice", name, m, err)
			}
		})
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
