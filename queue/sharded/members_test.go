package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/sharded"
)

// Shards come and go while producers send: every message is in one shard, and none comes to a shard after
// its removal.
func TestShardsComeAndGoWhileMessagesAreSent(t *testing.T) {
	for _, place := range append(spreading, sharded.ByKey) {
		b := setup(t, 3, &sharded.Options{Place: place, PerTenant: 2})
		engine := must(localqueue.New(nil))
		stop := make(chan struct{})
		var sending sync.WaitGroup
		var mu sync.Mutex
		sent := map[string]queue.Name{}
		for p := range 4 {
			sending.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					text := fmt.Sprint(p, " ", i)
					m, err := b.Enqueue(t.Context(), text, &queue.EnqueueOptions{Key: fmt.Sprint(i % 50)})
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					sent[text] = m.Queue
					mu.Unlock()
				}
			})
		}
		depths := map[queue.Name]int64{} // of removed shards, when they were removed
		for i := range 60 {
			if i%2 == 0 {
				s := newShard(t, engine, 10+i)
				b.shards = append(b.shards, s)
				if err := b.Add(s); err != nil {
					t.Error(err)
				}
				continue
			}
			s := b.Shards()[0]
			if err := b.Remove(t.Context(), s.Name()); err != nil {
				t.Error(err)
			}
			p, err := s.(*disturbed).Queue.Properties(t.Context())
			if err != nil {
				t.Error(err)
			}
			depths[s.Name()] = p.Depth
		}
		close(stop)
		sending.Wait()
		found := 0
		for _, s := range b.shards {
			texts := drain(t, s)
			if depth, removed := depths[s.Name()]; removed && int64(len(texts)) != depth {
				t.Errorf("%v: %v had %d messages when it was removed, and %d in the end", place, s.Name(), depth, len(texts))
			}
			for _, text := range texts {
				if found++; sent[text] != s.Name() {
					t.Fatalf("%v: message %q is in %v and was sent to %v", place, text, s.Name(), sent[text])
				}
			}
		}
		if found != len(sent) {
			t.Errorf("%v: %d messages were accepted and %d are there", place, len(sent), found)
		}
	}
}

// drain returns the texts of all messages.
func drain(t *testing.T, q *disturbed) (texts []string) {
	t.Helper()
	for {
		batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if len(batch) == 0 {
			return texts
		}
		for _, m := range batch {
			texts = append(texts, m.Text)
		}
	}
}

// Remove waits for requests that are under way, or what they bring would be left behind by whoever drains
// the shard.
func TestRemoveWaitsForRequestsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, nil)
		slow := func(_ context.Context, send func() (queue.Message, error)) (queue.Message, error) {
			time.Sleep(10 * time.Second)
			return send()
		}
		b.shards[0].disturb(slow)
		var running sync.WaitGroup
		for i := range 4 {
			running.Go(func() { b.send(t, fmt.Sprint(i), "") })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Remove(ctx, b.shards[0].Name()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that messages are under way", err)
		}
		if err := b.Remove(t.Context(), b.shards[0].Name()); err == nil {
			t.Error("removed twice")
		}
		if err := b.Add(b.shards[0]); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		running.Go(func() { _ = b.send(t, "one more", "") })
		running.Go(func() { _ = b.send(t, "one more still", "") })
		synctest.Wait()
		if err := b.Remove(t.Context(), b.shards[0].Name()); err != nil || time.Since(start) != 10*time.Second {
			t.Errorf("removed with %v after %v, want 10s", err, time.Since(start))
		}
		running.Wait()
		if counts := b.counts(t); counts[0] < 2 {
			t.Errorf("%v messages, want some in the removed shard", counts)
		}
	})
}

func TestWhatCannotBeAddedOrRemoved(t *testing.T) {
	b := setup(t, 2, nil)
	for name, err := range map[string]error{
		"nil":     b.Add(nil),
		"again":   b.Add(b.shards[0]),
		"unknown": b.Remove(t.Context(), queue.Name{Queue: "unknown"}),
		"first":   b.Remove(t.Context(), b.shards[0].Name()),
		"last":    b.Remove(t.Context(), b.shards[1].Name()),
	} {
		if (err == nil) != (name == "first") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got := b.Shards(); len(got) != 1 || got[0] != queue.Queue(b.shards[1]) {
		t.Errorf("%v are left", got)
	}
}

// holder is a shard over several queues.
type holder struct {
	queue.Queue
	inner queue.Queue
}

func (h holder) Lookup(name queue.Name) (queue.Queue, bool) { return h.inner, name == h.inner.Name() }

func (h holder) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := h.inner.Enqueue(ctx, text, o)
	m.Queue = h.inner.Name()
	return m, err
}

// A shard may stand for several queues itself: then it says which has the message, and finds it.
func TestAShardMayBeSeveralQueues(t *testing.T) {
	first := setup(t, 1, nil).shards[0]
	backlog := first.Sibling("-backlog")
	if err := backlog.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	q, err := sharded.New([]queue.Queue{holder{first, backlog}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := q.Enqueue(t.Context(), "text", nil)
	if err != nil || m.Queue != backlog.Name() {
		t.Fatalf("got %+v, %v", m, err)
	}
	found, ok := q.Lookup(m.Queue)
	if !ok || found.Name() != backlog.Name() {
		t.Errorf("%v was not found", m.Queue)
	}
	if found, ok := q.Lookup(first.Name()); !ok || found.Name() != first.Name() {
		t.Errorf("%v was not found", first.Name())
	}
	if _, ok := q.Lookup(queue.Name{}); ok {
		t.Error("a queue without a name was found")
	}
}

// S-05: the state is per shard.
func TestTheStateIsPerShard(t *testing.T) {
	b := setup(t, 3, nil)
	for i := range 9 {
		b.send(t, fmt.Sprint(i), "")
	}
	b.shards[1].fail(queue.ErrThrottled)
	b.until(t, queue.ErrThrottled)
	var total int64
	for i, s := range b.States() {
		total += s.Accepted
		if s.Queue != b.shards[i].Name() || s.RestsUntil.IsZero() == (i == 1) || (s.Err == nil) == (i == 1) {
			t.Errorf("shard %d: %+v", i, s)
		}
	}
	if counts := b.counts(t); total != counts[0]+counts[1]+counts[2] || !slices.Contains(counts, 3) {
		t.Errorf("%d accepted, %v there", total, counts)
	}
	if !strings.Contains(b.Name().String(), "orders") {
		t.Errorf("it is called %v", b.Name())
	}
}
