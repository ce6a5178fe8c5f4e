package sharded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// fill puts messages on a shard that the sharded queue knows nothing of.
func (b *bundle) fill(t *testing.T, shard, n int) {
	t.Helper()
	for range n {
		if _, err := b.shards[shard].Queue.Enqueue(t.Context(), "from others", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// S-05: what is full gets nothing until the others have as much, between readings too.
func TestLeastDepthFillsTheEmptyShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 4, &sharded.Options{Place: sharded.LeastDepth})
		b.fill(t, 0, 300)
		b.fill(t, 1, 100)
		for i := range 500 {
			b.send(t, fmt.Sprint(i), "")
		}
		counts := b.counts(t)
		if counts[0] != 300 || slices.Max(counts[1:])-slices.Min(counts[1:]) > 10 {
			t.Errorf("the depths are %v, want that nothing was sent to the first, and the others even", counts)
		}
		// A backlog that workers take shows with the next reading.
		if err := b.shards[0].Queue.(queue.Manager).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.send(t, "too early", "")
		if b.counts(t)[0] != 0 {
			t.Error("the depth was read too early")
		}
		time.Sleep(10 * time.Second)
		for i := range 150 {
			b.send(t, fmt.Sprint("later", i), "")
		}
		if got := b.counts(t)[0]; got < 60 {
			t.Errorf("a shard that was emptied got %d of 150 messages", got)
		}
	})
}

// What this Queue has placed is in the next reading, or was taken by workers: it must not count twice.
func TestAReadingReplacesWhatWasPlacedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, &sharded.Options{Place: sharded.LeastDepth})
		b.fill(t, 1, 100)
		for i := range 100 {
			b.send(t, fmt.Sprint(i), "")
		}
		if err := b.shards[0].Queue.(queue.Manager).Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		for i := range 90 {
			b.send(t, fmt.Sprint("later", i), "")
		}
		if counts := b.counts(t); counts[0] != 90 || counts[1] != 100 {
			t.Errorf("the depths are %v, want that the first got all 90", counts)
		}
	})
}

// The price of LeastDepth: a reading of each shard in an interval, and none while nothing is sent.
func TestDepthsAreReadOnceInAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 3, &sharded.Options{Place: sharded.LeastDepth, DepthEvery: 20 * time.Second})
		var cause request.Cause
		b.shards[0].properties = func(ctx context.Context) (queue.Properties, error) {
			cause = request.CauseOf(ctx)
			if request.Repeats(ctx) != 0 {
				t.Error("a reading counts as repeated")
			}
			return queue.Properties{}, nil
		}
		readings := func() (all int64) {
			for _, s := range b.shards {
				all += s.readings.Load()
			}
			return all
		}
		ctx := request.WithRepeats(t.Context(), 1)
		for i := range 10 * 60 * 10 { // ten minutes, ten a second
			if _, err := b.Enqueue(ctx, fmt.Sprint(i), nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if got := readings(); got != 3*30 || cause != request.CauseDepth {
			t.Errorf("%d readings with the cause %v, want 90 for the depth", got, cause)
		}
		time.Sleep(time.Hour)
		if got := readings(); got != 3*30 {
			t.Errorf("%d readings while nothing was sent", got-3*30)
		}
	})
	b := setup(t, 3, nil)
	for i := range 10 {
		b.send(t, fmt.Sprint(i), "")
	}
	if n := b.shards[0].readings.Load(); n != 0 {
		t.Errorf("round robin reads %d depths", n)
	}
}

// A shard whose depth cannot be read is neither flooded nor left out.
func TestAnUnknownDepthIsNoReasonForOrAgainstAShard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 4, &sharded.Options{Place: sharded.LeastDepth})
		b.shards[3].properties = func(context.Context) (queue.Properties, error) {
			return queue.Properties{}, queue.ErrUnauthorized
		}
		b.fill(t, 0, 5000)
		for i := range 1000 {
			b.send(t, fmt.Sprint(i), "")
		}
		// It is in half of the pairs, and first in half of these.
		if got := b.counts(t)[3]; got < 190 || got > 310 {
			t.Errorf("got %d of 1000 messages, want about a quarter", got)
		}
	})
}

// A reading that hangs delays one Enqueue by a second, once in an interval.
func TestAReadingThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, 2, &sharded.Options{Place: sharded.LeastDepth})
		b.shards[0].properties = func(ctx context.Context) (queue.Properties, error) {
			<-ctx.Done()
			return queue.Properties{}, ctx.Err()
		}
		start := time.Now()
		for i := range 100 {
			b.send(t, fmt.Sprint(i), "")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("100 messages took %v, want a second", took)
		}
		// A caller that gives up while it reads has learnt nothing, and the next one reads.
		time.Sleep(10 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := b.Enqueue(ctx, "given up", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		before := b.shards[1].readings.Load()
		if _, err := b.Enqueue(ctx, "has ended", nil); err == nil || b.shards[1].readings.Load() != before {
			t.Errorf("a call whose context had ended has read depths: %v", err)
		}
		b.send(t, "next", "")
		if got := b.shards[1].readings.Load() - before; got != 1 {
			t.Errorf("%d readings after one that its caller ended", got)
		}
	})
}

// The depth is a sum and per shard; errors are per shard too.
func TestDepthsAreASumAndPerShard(t *testing.T) {
	b := setup(t, 3, nil)
	for i := range 3 {
		b.fill(t, i, 10*(i+1))
	}
	if p, err := b.Properties(t.Context()); err != nil || p.Depth != 60 {
		t.Errorf("got %+v, %v; want 60", p, err)
	}
	b.shards[1].properties = func(context.Context) (queue.Properties, error) {
		return queue.Properties{Depth: 7}, queue.ErrUnavailable
	}
	p, err := b.Properties(t.Context())
	if p.Depth != 40 || !errors.Is(err, queue.ErrUnavailable) {
		t.Errorf("got %+v, %v; want the 40 of the others and the error", p, err)
	}
	for i, d := range b.Depths(t.Context()) {
		want := []int64{10, 0, 30}[i]
		if d.Queue != b.shards[i].Name() || d.Depth != want || errors.Is(d.Err, queue.ErrUnavailable) != (i == 1) {
			t.Errorf("shard %d: got %+v", i, d)
		}
	}
}

func TestCreateCreatesAllShards(t *testing.T) {
	b := setup(t, 3, nil)
	for _, s := range b.shards[1:] {
		if err := s.Queue.(queue.Manager).Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.shards[0].Queue = b.shards[0].Sibling("-other")
	if err := b.Create(t.Context(), map[string]string{"owner": "us"}); err == nil || !errors.Is(err, queue.ErrQueueBeingDeleted) {
		t.Errorf("got %v, want that queues are being deleted", err)
	}
	if p, err := b.shards[0].Queue.Properties(t.Context()); err != nil || p.Metadata["owner"] != "us" {
		t.Errorf("the first was not created: %+v, %v", p, err)
	}
}
