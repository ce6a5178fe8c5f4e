package listener

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// repeating is a queue whose dequeues fail with these errors in order, and then work. It records
// how often each was repeated.
type repeating struct {
	queue.Queue
	errs    []error
	repeats []int
}

func (q *repeating) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	q.repeats = append(q.repeats, retry.Repeats(ctx))
	if i := len(q.repeats) - 1; i < len(q.errs) && q.errs[i] != nil {
		return nil, q.errs[i]
	}
	return q.Queue.Dequeue(ctx, n, v)
}

// B-01: a poll tells its queue how many before it failed, so that it may take longer. A success
// starts the count anew.
func TestAPollKnowsHowManyBeforeItFailed(t *testing.T) {
	bubble(t, func(b *bundle) {
		unknown := &queue.Error{Op: "dequeue", Kind: queue.ErrOutcomeUnknown}
		q := &repeating{Queue: b.queue, errs: []error{nil, unknown, unknown, unknown, nil, unknown}}
		b.run(New(q, nothing, options()))
		advance(10 * time.Second)
		b.mustFinish()
		if want := []int{0, 0, 1, 2, 3, 0, 1, 0}; len(q.repeats) < len(want) || !slices.Equal(q.repeats[:len(want)], want) {
			t.Errorf("polls were repeated %v times, want %v", q.repeats, want)
		}
	})
}

// L-13: work resets the idle count that QueueEmpty gets.
func TestWorkResetsTheIdleCount(t *testing.T) {
	bubble(t, func(b *bundle) {
		var counts []int // of the one loop
		o := options()
		o.Fetch.QueueEmpty = func(idle int) (time.Duration, bool) {
			counts = append(counts, idle)
			return 10 * time.Second, false
		}
		b.run(New(b.queue, nothing, o))
		advance(25 * time.Second)
		b.put(1)
		advance(20 * time.Second)
		b.mustFinish()
		if want := []int{1, 2, 3, 1, 2}; !slices.Equal(counts, want) {
			t.Errorf("idle counts %v, want %v: three empty polls, work, two empty polls", counts, want)
		}
	})
}

// after work the waits of the idle curve start from the beginning.
func TestWorkResetsTheIdleCurve(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Fetch.Idle = Idle{Min: 100 * time.Millisecond, Max: time.Hour}
		b.run(New(b.queue, nothing, o))
		advance(10 * time.Minute)
		b.put(1)
		advance(time.Hour)
		b.mustFinish()
		polls := b.queue.sent("dequeue")
		found := slices.IndexFunc(polls, func(c request) bool { return c.got > 0 })
		if found < 5 || len(polls) < found+5 {
			t.Fatalf("the work was found by poll %d of %d, want several before and after", found, len(polls))
		}
		var waits []time.Duration
		for i := found; i < found+4; i++ {
			waits = append(waits, polls[i+1].at.Sub(polls[i].at))
		}
		// L-22 with r of 80…119 ms, after a poll at once.
		for i, bounds := range [][2]int{{0, 0}, {180, 219}, {340, 457}, {660, 933}} {
			if got := int(waits[i] / time.Millisecond); got < bounds[0] || got > bounds[1] {
				t.Errorf("wait %d after the work: got %d ms, want %d…%d", i, got, bounds[0], bounds[1])
			}
		}
	})
}

// asking is a queue that records the visibilities of its dequeues.
type asking struct {
	queue.Queue
	asked []time.Duration
}

func (q *asking) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	q.asked = append(q.asked, v)
	return q.Queue.Dequeue(ctx, n, v)
}

// B-08: every dequeue asks for the visibility of its queue: a fixed one, the first one, or the
// one that follows the handling time.
func TestADequeueAsksForTheVisibilityOfItsQueue(t *testing.T) {
	for name, c := range map[string]struct {
		visibility  Visibility
		takes       time.Duration
		first, last time.Duration
	}{
		"fixed, 5 s":    {dispatcher.FixedVisibility(5 * time.Second), 20 * time.Second, 5 * time.Second, 5 * time.Second},
		"fixed, 30 min": {dispatcher.FixedVisibility(30 * time.Minute), 20 * time.Second, 30 * time.Minute, 30 * time.Minute},
		"default":       {Visibility{}, 40 * time.Second, 30 * time.Second, 80 * time.Second},
		"first":         {Visibility{First: 50 * time.Second}, 0, 50 * time.Second, 10 * time.Second},
		"bounded":       {Visibility{Min: 20 * time.Second, Max: time.Minute}, 40 * time.Second, 30 * time.Second, time.Minute},
	} {
		bubble(t, func(b *bundle) {
			q := &asking{Queue: b.queue}
			o := options()
			o.Lease.Visibility, o.Concurrency, o.Fetch.BatchSize = c.visibility, 8, 8
			b.put(64)
			b.run(New(q, func(context.Context, *Message[job]) error { time.Sleep(c.takes); return nil }, o))
			advance(10 * time.Minute)
			b.mustFinish()
			first, last := q.asked[0], q.asked[len(q.asked)-1]
			if first != c.first || last != c.last {
				t.Errorf("%s: the first dequeue asked for %v, the last for %v; want %v and %v", name, first, last, c.first, c.last)
			}
		})
	}
}

// idlePolls returns when four loops poll that are idle together and never end.
func idlePolls(t *testing.T, seed uint64, idle Idle) (at []time.Duration) {
	bubble(t, func(b *bundle) {
		o := options()
		o.Seed, o.Fetch.Idle, o.Fetch.Loops = seed, idle, Loops{Min: 4, Max: 4}
		o.Concurrency = 4 * 32
		b.run(New(b.queue, nothing, o))
		advance(10 * time.Minute)
		b.mustFinish()
		for _, c := range b.queue.sent("dequeue") {
			at = append(at, c.at.Sub(b.begin))
		}
	})
	return at
}

// L-25: loops that start together and stay idle do not poll together, also where every wait is
// the longest, and wait within a tenth of it. A seed repeats.
func TestLoopsThatAreIdleTogetherDoNotPollTogether(t *testing.T) {
	for name, idle := range map[string]Idle{
		"growing":  {Min: 100 * time.Millisecond, Max: 10 * time.Second},
		"constant": {Min: 10 * time.Second, Max: 10 * time.Second},
	} {
		polls := idlePolls(t, 7, idle)
		if most := 4*600/10 + 4*8; len(polls) < 4*600/11 || len(polls) > most {
			t.Errorf("%s: four loops polled %d times in 600 s, want %d…%d", name, len(polls), 4*600/11, most)
		}
		for i := 5; i < len(polls); i++ { // the first poll of each is at the start
			if polls[i] == polls[i-1] {
				t.Errorf("%s: polls %d and %d: got both at %v, want different times", name, i-1, i, polls[i])
				break
			}
		}
		if again := idlePolls(t, 7, idle); !slices.Equal(again, polls) {
			t.Errorf("%s: polls of one seed: got %v and then %v, want the same", name, polls, again)
		}
		if other := idlePolls(t, 8, idle); slices.Equal(other, polls) {
			t.Errorf("%s: polls of two seeds: got the same times %v, want different ones", name, polls)
		}
	}
}
