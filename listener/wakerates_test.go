package listener

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/wakeup"
)

// L-39: what docs/cost.md says of messages that come one by one. Alone, a message costs two dequeues, or one if the
// embedded server has the queue. Of a trickle it never costs more than polls do, unless a wrapper says nothing about short
// batches, or the source says that requests cost nothing.
func TestWhatMessagesCostThatComeOneByOne(t *testing.T) {
	gaps := []time.Duration{10 * time.Second, time.Second, 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond}
	if testing.Short() {
		gaps = gaps[1:3]
	}
	for _, gap := range gaps {
		polled := dequeuesForOne(t, gap, "polls")
		for way, alone := range map[string]float64{"wrapper": 2, "Azure": 2, "limited": 2, "rate": 2, "paired": 2, "engine": 1} {
			most := alone
			if way != "wrapper" && way != "engine" { // whose requests cost no money
				most = min(alone, polled)
			}
			if got := dequeuesForOne(t, gap, way); got > most {
				t.Errorf("a message every %v, %s: got %.2f dequeues for each, want at most %.2f", gap, way, got, most)
			}
		}
	}
}

// After a short batch nobody polls. A message that is given back is still found when it is visible again, without events
// and safety polls: after a failure, a snooze, and at once.
func TestALoopThatEndsAtAShortBatchForgetsNoRetry(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 90 * time.Second} {
		bubble(t, func(b *bundle) {
			bus, o := new(wakeup.Bus), options()
			o.Wakeups, o.Fetch.SafetyPoll = bus, noSafety
			var at []time.Time
			l := New(promising{b.queue, 1}, func(context.Context, *Message[job]) error {
				if at = append(at, time.Now()); len(at) < 3 {
					return Snooze(wait)
				}
				return nil
			}, o)
			b.run(l)
			advance(time.Minute)
			before := b.dequeues()
			b.put(1)
			b.publish(bus)
			synctest.Wait()
			if got := b.dequeues() - before; wait > 0 && got != 1 {
				b.Errorf("a lone message that fails: got %d dequeues, want 1", got)
			}
			b.mustBeIdle(l)
			advance(2*wait + 3*time.Second)
			if len(at) != 3 || at[2].Sub(at[0]) > 2*wait+2*time.Second {
				b.Errorf("given back for %v: got attempts at %v, want three", wait, at)
			}
			if got := b.dequeues() - before; got > 3 {
				b.Errorf("given back for %v: got %d dequeues, want one for each attempt", wait, got)
			}
			b.mustBeIdle(l)
			b.mustFinish()
		})
	}
}

// When the next messages come, the depth says how many loops they call for, as after an empty poll.
func TestTheDepthIsReadAgainAfterAShortBatch(t *testing.T) {
	bubble(t, func(b *bundle) {
		bus, o := new(wakeup.Bus), options()
		o.Wakeups, o.Fetch.SafetyPoll, o.Concurrency = bus, noSafety, 100
		l := New(promising{b.queue, 1}, nothing, o)
		b.run(l)
		advance(time.Minute)
		for n := range 3 {
			b.put(40)
			b.publish(bus)
			advance(5 * time.Second)
			if got := len(b.queue.sent("properties")); got != n+1 {
				b.Errorf("got %d readings of the depth after %d bursts, want one for each", got, n+1)
			}
			b.mustBeIdle(l)
		}
		b.mustFinish()
	})
}

// promising is a queue that says what a short batch shows.
type promising struct {
	queue.Queue
	after int
}

func (q promising) EmptyAfter() int { return q.after }

// dequeuesForOne returns how many dequeues a message costs, of those that come for half a minute, or ten of them. A
// dequeue takes 4 ms and a handler 20.
func dequeuesForOne(t *testing.T, gap time.Duration, way string) (each float64) {
	t.Helper()
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" {
				time.Sleep(4 * time.Millisecond)
			}
			return act()
		}
		bus, o, q := new(wakeup.Bus), options(), queue.Queue(b.queue)
		switch o.Seed, o.Fetch.SafetyPoll = 1, noSafety; way {
		case "wrapper":
			o.Wakeups = bus
		case "Azure":
			o.Wakeups, q = bus, promising{b.queue, 2}
		case "limited":
			l, err := limits.NewProcess(&limits.ProcessOptions{Messages: 500})
			if err != nil {
				b.Fatal(err)
			}
			o.Wakeups, q = bus, l.Wrap(promising{b.queue, 2})
		case "rate":
			r, source := limits.Rate{Jobs: 10_000, Window: time.Minute, Seed: 1}, b.engine.Queue(queue.Name{Account: "acme", Queue: "tokens"})
			if err := r.Init(b.Context(), source); err != nil {
				b.Fatal(err)
			}
			l, err := r.Open(b.Context(), source)
			if err != nil {
				b.Fatal(err)
			}
			o.Wakeups, q = bus, l.Wrap(promising{b.queue, 2})
		case "paired":
			q = must(paired.New(promising{b.queue, 2}, b.engine.Queue(queue.Name{Account: "east", Queue: "jobs"}), nil))
			o.Wakeups = bus
		case "engine":
			o.Wakeups, q = b.engine, promising{b.queue, 2}
		}
		b.run(New(q, func(context.Context, *Message[job]) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, o))
		advance(time.Minute)
		before, n := b.dequeues(), 0
		for end := time.Now().Add(max(30*time.Second, 10*gap)); time.Now().Before(end); n++ {
			b.put(1)
			b.publish(bus)
			time.Sleep(gap)
		}
		advance(time.Second)
		each = float64(b.dequeues()-before) / float64(n)
		b.Logf("a message every %v, %s: %.2f dequeues for each", gap, way, each)
		b.mustFinish()
	})
	return each
}
