package shards_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/wakeup"
)

// removal is what a call of Remove has returned.
type removal struct {
	at  time.Duration // when, since the start of the test
	err error
}

// remove calls Remove on a goroutine of its own. A removal that takes days has failed.
func (r *running) remove(i int) <-chan removal {
	done := make(chan removal, 1)
	go func() {
		ctx, cancel := context.WithTimeout(r.b.Context(), 48*time.Hour)
		defer cancel()
		err := r.Remove(ctx, name(i))
		done <- removal{time.Since(r.b.begin), err}
	}()
	return done
}

// names returns the shards, with a star for those that are being removed.
func (r *running) names() (all []string) {
	for _, one := range r.State().Shards {
		n := one.Shard.Queue
		if one.Leaving {
			n += "*"
		}
		all = append(all, n)
	}
	return all
}

// A shard that is being removed is listened to until it has been empty for Settle: what comes late is
// handled and begins the time anew, and hidden messages count.
func TestARemovedShardIsDrained(t *testing.T) {
	const settle, reading = 5 * time.Minute, 30 * time.Second
	for _, c := range []struct {
		what          string
		before, after func(b *bundle, q queue.Queue) // the listener starts
		gone          time.Duration                  // at the earliest; one reading later at the latest
		jobs          int
	}{
		{what: "an empty one", gone: settle},
		{what: "a late message", gone: 9 * time.Minute, jobs: 1, after: func(b *bundle, q queue.Queue) {
			advance(4 * time.Minute)
			b.put(q, 1)
		}},
		{what: "a delayed message", gone: time.Hour + settle, jobs: 1, before: func(b *bundle, q queue.Queue) {
			if _, err := q.Enqueue(b.Context(), `{"N":1}`, &queue.EnqueueOptions{Delay: time.Hour}); err != nil {
				b.Fatal(err)
			}
		}},
		{what: "a message that another process has", gone: 10*time.Minute + settle, jobs: 1, before: func(b *bundle, q queue.Queue) {
			b.put(q, 1)
			if got, err := q.Dequeue(b.Context(), 1, 10*time.Minute); err != nil || len(got) != 1 {
				b.Fatalf("dequeue: got %v, %v", got, err)
			}
		}},
	} {
		bubble(t, func(b *bundle) {
			all := b.shards(3)
			if c.before != nil {
				c.before(b, all[1])
			}
			r := b.run(must(shards.New(all, b.handle, b.options())))
			done := r.remove(1)
			advance(0)
			if got, want := r.names(), []string{"jobs-0", "jobs-1*", "jobs-2"}; !slices.Equal(got, want) {
				t.Errorf("%s: got shards %v, want %v", c.what, got, want)
			}
			if c.after != nil {
				c.after(b, all[1])
			}
			got := <-done
			if got.err != nil || got.at < c.gone || got.at > c.gone+reading+time.Second {
				t.Errorf("%s: Remove returned %v after %v, want nil after %v to %v", c.what, got.err, got.at, c.gone, c.gone+reading)
			}
			if len(b.jobs()) != c.jobs || b.depth(all[1]) != 0 {
				t.Errorf("%s: got %d jobs, depth %d; want %d and 0", c.what, len(b.jobs()), b.depth(all[1]), c.jobs)
			}
			if got, want := r.names(), []string{"jobs-0", "jobs-2"}; !slices.Equal(got, want) {
				t.Errorf("%s: got shards %v, want %v", c.what, got, want)
			}
			if st := r.State(); st.Total.Outcomes[listener.Deleted] != int64(c.jobs) || st.Total.ByCause["depth"] < 11 {
				t.Errorf("%s: got Succeeded %d, %d readings of the depth; want those of the removed shard too", c.what, st.Total.Outcomes[listener.Deleted], st.Total.ByCause["depth"])
			}
			polls := r.State().Total.Polls
			b.put(all[1], 99) // whoever still places on it
			advance(time.Hour)
			if r.State().Total.Polls <= polls || slices.Contains(b.jobs(), 99) {
				t.Errorf("%s: got polls %d then %d, jobs %v; want the others polled and the removed shard not", c.what, polls, r.State().Total.Polls, b.jobs())
			}
			r.mustFinish()
		})
	}
}

// With a negative Settle the listener stops when the shard is first found empty.
func TestAShardNeedNotSettle(t *testing.T) {
	bubble(t, func(b *bundle) {
		o := b.options()
		o.Settle = -1
		r := b.run(must(shards.New(b.shards(2), b.handle, o)))
		advance(time.Second)
		if got := <-r.remove(1); got.err != nil || got.at > 2*time.Second {
			t.Errorf("Remove: got %v at %v, want nil at once", got.err, got.at)
		}
		r.mustFinish()
	})
}

// What comes between the last reading and the end of the listener, such as with a dequeue that is in flight,
// is not left behind: the shard is listened to again.
func TestAMessageThatComesAtTheLastMomentIsHandled(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		late := &lateQueue{Queue: all[1], reading: 11, act: func() { b.put(all[1], 7) }}
		o := b.options()
		o.Settle = 10 * time.Second
		r := b.run(must(shards.New([]queue.Queue{all[0], late}, b.handle, o)))
		got := <-r.remove(1)
		if got.err != nil || !slices.Equal(b.jobs(), []int{7}) || late.acted != 1 || got.at < 20*time.Second {
			t.Errorf("got %v after %v, jobs %v; want job 7, and nil after another 10 s", got.err, got.at, b.jobs())
		}
		r.mustFinish()
	})
}

// A shard that is added again while its depth is read for the last time stays.
func TestAShardThatIsAddedAgainAtTheLastMomentStays(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		late := &lateQueue{Queue: all[1], reading: 12} // after the listener has ended
		o := b.options()
		o.Settle = 10 * time.Second
		l := must(shards.New([]queue.Queue{all[0], late}, b.handle, o))
		late.act = func() {
			if err := l.Add(late); err != nil {
				t.Errorf("Add: got %v, want nil", err)
			}
		}
		r := b.run(l)
		if got := <-r.remove(1); got.err == nil || late.acted != 1 {
			t.Errorf("Remove: got %v, want an error, because the shard was added again", got.err)
		}
		b.put(all[1], 7)
		advance(time.Minute)
		if got, want := r.names(), []string{"jobs-0", "jobs-1"}; !slices.Equal(got, want) || !slices.Equal(b.jobs(), []int{7}) {
			t.Errorf("got shards %v, jobs %v; want %v and job 7", got, b.jobs(), want)
		}
		r.mustFinish()
	})
}

// Nor does a shard go that is added again while its listener ends, which a dequeue in flight makes long.
func TestAShardThatIsAddedAgainWhileItsListenerEndsStays(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		late := &lateQueue{Queue: slowDequeues{all[1]}, reading: 11} // the last before the listener ends
		o := b.options()
		o.Settle = 10 * time.Second
		l := must(shards.New([]queue.Queue{all[0], late}, b.handle, o))
		late.act = func() {
			time.AfterFunc(time.Second, func() {
				if err := l.Add(late); err != nil {
					t.Errorf("Add: got %v, want nil", err)
				}
			})
		}
		r := b.run(l)
		if got := <-r.remove(1); got.err == nil || late.acted != 1 {
			t.Errorf("Remove: got %v, want an error, because the shard was added again", got.err)
		}
		advance(10 * time.Second) // the listener has ended
		b.put(all[1], 7)
		advance(time.Minute)
		if got, want := r.names(), []string{"jobs-0", "jobs-1"}; !slices.Equal(got, want) || !slices.Equal(b.jobs(), []int{7}) {
			t.Errorf("got shards %v, jobs %v; want %v and job 7", got, b.jobs(), want)
		}
		r.mustFinish()
	})
}

// slowDequeues is a queue whose dequeues take 8 s, whoever has given up.
type slowDequeues struct{ queue.Queue }

func (q slowDequeues) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	time.Sleep(8 * time.Second)
	return q.Queue.Dequeue(ctx, n, v)
}

// lateQueue acts after the reading with this number, from 1.
type lateQueue struct {
	queue.Queue
	reading int
	act     func()
	acted   int // only the goroutine that reads uses it until Remove has returned
}

func (q *lateQueue) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := q.Queue.Properties(ctx)
	if request.CauseOf(ctx) == request.CauseDepth {
		if q.reading--; q.reading == 0 {
			q.acted++
			q.act()
		}
	}
	return p, err
}

// While its depth cannot be read a shard is not removed; a queue that somebody has dropped is.
func TestAShardIsNotRemovedUnlessItIsKnownToBeEmpty(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		deaf := must(faultqueue.New(all[1], &faultqueue.Options{Phases: []faultqueue.Phase{{
			For: time.Hour, Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Properties: {Throttled: 1}},
		}}}))
		r := b.run(must(shards.New([]queue.Queue{all[0], deaf, all[2]}, b.handle, b.options())))
		done := r.remove(1)
		advance(time.Hour - time.Second)
		select {
		case got := <-done:
			t.Errorf("Remove: got %v, want it to wait while the depth cannot be read", got.err)
		default:
		}
		errs := b.reported()
		var e *shards.Error
		if len(errs) == 0 || !errors.As(errs[0], &e) || e.Shard != name(1) || !errors.Is(errs[0], queue.ErrThrottled) {
			t.Errorf("OnError: got %v, want the failed readings of test/jobs-1", errs)
		}
		if got := <-done; got.err != nil || got.at < time.Hour+5*time.Minute-time.Minute || got.at > time.Hour+6*time.Minute {
			t.Errorf("Remove: got %v after %v, want nil about 5 min after the hour", got.err, got.at)
		}
		dropped := r.remove(2)
		if err := b.engine.Queue(name(2)).Drop(b.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-dropped; got.err != nil {
			t.Errorf("Remove of a dropped queue: got %v, want nil", got.err)
		}
		r.mustFinish()
	})
}

// Without polling, what nobody was woken for is found by the readings of the depth.
func TestARemovedShardIsDrainedWithoutPolling(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		o := b.options()
		o.Listener.Wakeups, o.Listener.Fetch.SafetyPoll = new(wakeup.Bus), -1
		r := b.run(must(shards.New(all, b.handle, o)))
		advance(time.Minute)
		b.put(all[1], 1) // and publishes no event
		advance(time.Hour)
		if got := b.jobs(); len(got) != 0 {
			t.Fatalf("got jobs %v without an event, want none", got)
		}
		if got := <-r.remove(1); got.err != nil || !slices.Equal(b.jobs(), []int{1}) {
			t.Errorf("Remove: got %v, jobs %v; want nil and job 1", got.err, b.jobs())
		}
		r.mustFinish()
	})
}

func TestRemoveSaysWhyTheShardIsStillThere(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		b.put(all[1], 0)
		if _, err := all[1].Dequeue(b.Context(), 1, 24*time.Hour); err != nil { // somebody has it all the time
			t.Fatal(err)
		}
		r := b.run(must(shards.New(all[:2], b.handle, b.options())))
		if err := r.Remove(b.Context(), name(9)); err == nil || !strings.Contains(err.Error(), "test/jobs-9: there is no such shard") {
			t.Errorf("an unknown shard: got %v", err)
		}

		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		if err := r.Remove(ctx, name(1)); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "still listened to") {
			t.Errorf("the end of ctx: got %v, want it to say that the shard is still listened to", err)
		}
		if got, want := r.names(), []string{"jobs-0", "jobs-1*"}; !slices.Equal(got, want) {
			t.Errorf("after the end of ctx: got %v, want %v, still being removed", got, want)
		}
		if err := r.Remove(b.Context(), name(0)); err == nil || !strings.Contains(err.Error(), "the last shard") {
			t.Errorf("the last shard: got %v, want a refusal", err)
		}

		again, twice := r.remove(1), r.remove(1) // they wait for the same
		advance(time.Minute)
		if err := r.Add(all[1]); err != nil {
			t.Errorf("Add of a shard that is being removed: got %v, want nil", err)
		}
		for _, done := range []<-chan removal{again, twice} {
			if got := <-done; got.err == nil || !strings.Contains(got.err.Error(), "added again") {
				t.Errorf("Remove of a shard that was added again: got %v, want an error that says so", got.err)
			}
		}
		if err := r.Add(all[1]); err == nil || !strings.Contains(err.Error(), "already") {
			t.Errorf("Add twice: got %v, want an error", err)
		}
		b.put(all[1], 1)
		advance(time.Hour)
		if got, want := r.names(), []string{"jobs-0", "jobs-1"}; !slices.Equal(got, want) || !slices.Equal(b.jobs(), []int{1}) {
			t.Errorf("got shards %v, jobs %v; want %v and job 1", got, b.jobs(), want)
		}

		done := r.remove(1)
		advance(time.Minute)
		r.mustFinish()
		if got := <-done; got.err == nil || !strings.Contains(got.err.Error(), "may have messages") {
			t.Errorf("Remove when Run ends: got %v, want it to say that the queue may have messages", got.err)
		}
	})
}

// A shard that is being removed does not keep the listener from being ready.
func TestALeavingShardNeedNotBeReady(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		r := b.run(must(shards.New([]queue.Queue{all[0], faulty(all[1], faultqueue.Rates{Throttled: 1}, time.Hour)}, b.handle, b.options())))
		advance(time.Minute)
		if r.State().Ready() {
			t.Error("got ready, want the throttled shard to prevent it")
		}
		done := r.remove(1)
		advance(time.Second)
		if !r.State().Ready() {
			t.Error("got not ready, want a shard that is being removed not to count")
		}
		r.mustFinish()
		<-done
	})
}

// Before Run shards can be added and removed: a removed one is drained when it runs.
func TestShardsCanChangeBeforeRun(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		for i, q := range all {
			b.put(q, i)
		}
		l := must(shards.New(all[:2], b.handle, b.options()))
		if err := l.Add(all[2]); err != nil {
			t.Fatal(err)
		}
		early := &running{Listener: l, b: b}
		done := early.remove(0)
		advance(time.Hour)
		if st := l.State(); st.Phase != listener.Waiting || len(st.Shards) != 3 || st.Total.Requests != 0 {
			t.Errorf("before Run: got %+v, want three shards that wait", st)
		}
		r := b.run(l)
		if got := <-done; got.err != nil || len(b.jobs()) != 3 {
			t.Errorf("Remove: got %v, jobs %v; want nil and all three", got.err, b.jobs())
		}
		r.mustFinish()
	})
}
