package shards_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/listener/shards"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

var unauthorized error = &queue.Error{Op: "dequeue", Queue: name(1), Kind: queue.ErrUnauthorized, Status: 403, Code: "AuthorizationPermissionMismatch"}

// refusing is a queue whose dequeues fail while err is set.
type refusing struct {
	queue.Queue

	mu    sync.Mutex
	err   error       // guarded by mu
	tries []time.Time // when; guarded by mu
}

func (r *refusing) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	r.mu.Lock()
	r.tries = append(r.tries, time.Now())
	err := r.err
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return r.Queue.Dequeue(ctx, n, v)
}

func (r *refusing) allow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = nil
}

func (r *refusing) refusals() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.tries)
}

// faulty returns a queue with a fault of all dequeues for so long.
func faulty(q queue.Queue, rates faultqueue.Rates, d time.Duration) *faultqueue.Queue {
	return must(faultqueue.New(q, &faultqueue.Options{Phases: []faultqueue.Phase{{
		For: d, Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: rates},
	}}}))
}

// S-03: a shard that answers 503 for minutes is asked ever less often, and the others are handled
// as ever: not one of their jobs waits longer, and no more requests are sent to them.
func TestAThrottledShardRestsAlone(t *testing.T) {
	const outage = 5 * time.Minute
	requests := map[bool]int64{}
	for _, throttled := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			all := b.shards(3)
			listened := slices.Clone(all)
			if throttled {
				listened[1] = faulty(all[1], faultqueue.Rates{Throttled: 1}, outage)
			}
			for i := range 30 {
				b.put(all[i%3], i)
			}
			o := b.options()
			o.Listener.Seed = 1
			r := b.run(must(shards.New(listened, b.handle, o)))
			advance(outage - time.Second)
			st := r.State()
			requests[throttled] = st.Shards[0].Requests + st.Shards[2].Requests
			if st.Shards[0].Outcomes[listener.Deleted] != 10 || st.Shards[2].Outcomes[listener.Deleted] != 10 {
				t.Errorf("the other shards: got %d and %d jobs, want 10 each", st.Shards[0].Outcomes[listener.Deleted], st.Shards[2].Outcomes[listener.Deleted])
			}
			if one := st.Shards[1]; throttled {
				if one.Polls != 0 || one.ByFailure["throttled"] < 10 || one.ByFailure["throttled"] > 25 || one.Ready() || one.Refused != nil {
					t.Errorf("the throttled shard: got %+v; want 10 to 25 requests, all throttled, and not ready", one)
				}
				if st.Ready() || !errors.Is(st.Total.PollError, queue.ErrThrottled) || !strings.Contains(st.Total.PollError.Error(), "test/jobs-1") || st.Total.ByFailure["throttled"] != one.ByFailure["throttled"] {
					t.Errorf("total: got ready %v, %v; want not ready, and an error that names the shard", st.Ready(), st.Total.PollError)
				}
			}
			advance(time.Minute)
			st = r.State()
			if got := len(b.jobs()); got != 30 || !st.Ready() {
				t.Errorf("after the outage: got %d jobs, ready %v; want all 30, ready", got, st.Ready())
			}
			r.mustFinish()
		})
	}
	if requests[true] != requests[false] {
		t.Errorf("requests to the other shards: got %d with a throttled one, want %d as without", requests[true], requests[false])
	}
}

func TestAMissingShardIsWaitedForAlone(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := append(b.shards(1), b.missing(1))
		r := b.run(must(shards.New(all, b.handle, b.options())))
		b.put(all[0], 0)
		advance(time.Minute)
		if st := r.State(); st.Ready() || !errors.Is(st.Shards[1].PollError, queue.ErrQueueMissing) || !st.Shards[0].Ready() {
			t.Errorf("got state %+v, want the second shard missing and the first one ready", st)
		}
		b.shard(1)
		b.put(all[1], 1)
		advance(time.Minute)
		if st := r.State(); !st.Ready() || !slices.Equal(b.jobs(), []int{0, 1}) {
			t.Errorf("created: got jobs %v, ready %v; want both, ready", b.jobs(), st.Ready())
		}
		r.mustFinish()
	})
}

// A shard that the service refuses, such as one whose role was not assigned yet, is reported under its
// name, tried again ever later, and takes part as soon as it can.
func TestARefusedShardRestsAndIsTriedAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(3)
		denied := &refusing{Queue: all[1], err: unauthorized}
		for i := range 30 {
			b.put(all[i%3], i)
		}
		r := b.run(must(shards.New([]queue.Queue{all[0], denied, all[2]}, b.handle, b.options())))
		advance(time.Hour)
		st := r.State()
		if len(b.jobs()) != 20 || !errors.Is(st.Shards[1].Refused, queue.ErrUnauthorized) || st.Shards[1].Ready() || st.Ready() || !st.Healthy() {
			t.Errorf("refused: got %d jobs, state %+v; want 20, the second shard refused and all healthy", len(b.jobs()), st)
		}
		tries := denied.refusals()
		if n := len(tries); n < 50 || n > 90 {
			t.Errorf("got %d tries in an hour, want about one a minute", n)
		}
		if first := tries[1].Sub(tries[0]); first < 500*time.Millisecond || first > 2*time.Second {
			t.Errorf("got the second try after %v, want about a second", first)
		}
		if int64(len(tries)) != st.Total.Requests-st.Shards[0].Requests-st.Shards[2].Requests {
			t.Errorf("requests of all: got %d, want those of the listeners that have ended too", st.Total.Requests)
		}
		for _, err := range b.reported() {
			var e *shards.Error
			if !errors.As(err, &e) || e.Shard != name(1) || e.Again <= 0 || !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "test/jobs-1") {
				t.Errorf("OnError: got %v, want an Error of test/jobs-1", err)
			}
		}
		if got := len(b.reported()); got != len(tries) {
			t.Errorf("OnError: got %d errors, want %d", got, len(tries))
		}
		denied.allow()
		advance(2 * time.Minute)
		if st := r.State(); len(b.jobs()) != 30 || !st.Ready() || st.Shards[1].Refused != nil || st.Shards[1].PollError != nil {
			t.Errorf("allowed: got %d jobs, state %+v; want all 30 and every shard ready", len(b.jobs()), st)
		}
		r.mustFinish()
	})
}

// If the service refuses every shard nothing can be done: Run ends with the errors, each naming its shard.
func TestRunEndsWhenEveryShardIsRefused(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		slow := &refusing{Queue: all[1], err: unauthorized}
		r := b.run(must(shards.New([]queue.Queue{&refusing{Queue: all[0], err: unauthorized}, must(faultqueue.New(slow, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: 10 * time.Second}}))}, b.handle, b.options())))
		err := <-r.done
		if !errors.Is(err, queue.ErrUnauthorized) || !strings.Contains(err.Error(), "shard test/jobs-0: ") || !strings.Contains(err.Error(), "shard test/jobs-1: ") {
			t.Errorf("Run: got %v, want both refusals with their shards", err)
		}
		if took := time.Since(b.begin); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("Run ended after %v, want it when the second shard has answered, after 10 s", took)
		}
		if st := r.State(); st.Phase != listener.Stopped {
			t.Errorf("got phase %v, want stopped", st.Phase)
		}
		r.stop()
	})
}

// A shard that is refused when the listener is stopped is in the error of Run, whether it rests or is being tried.
func TestRunReturnsTheErrorOfARefusedShard(t *testing.T) {
	for _, c := range []struct{ after, latency time.Duration }{
		{500 * time.Millisecond, 0}, {time.Minute, 0}, {10 * time.Minute, 0},
		{90 * time.Second, time.Minute}, // the second try is under way
	} {
		bubble(t, func(b *bundle) {
			all := b.shards(2)
			slow := must(faultqueue.New(&refusing{Queue: all[1], err: unauthorized}, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: c.latency}}))
			r := b.run(must(shards.New([]queue.Queue{all[0], slow}, b.handle, b.options())))
			advance(c.after)
			err := r.finish()
			var e *shards.Error
			if !errors.As(err, &e) || e.Shard != name(1) || !errors.Is(err, queue.ErrUnauthorized) {
				t.Errorf("stopped after %v: got %v, want the error of test/jobs-1", c.after, err)
			}
		})
	}
}

// Handlers that do not stop are in the error of Run, with the shard that they are of.
func TestAbandonedHandlersAreNamedWithTheirShard(t *testing.T) {
	bubble(t, func(b *bundle) {
		all := b.shards(2)
		release := make(chan struct{})
		o := b.options()
		o.Listener.Grace, o.Listener.Lease.SettleTimeout = -1, time.Second
		b.put(all[1], 1)
		r := b.run(must(shards.New(all, func(context.Context, *listener.Message[job]) error { <-release; return nil }, o)))
		advance(time.Second)
		err := r.finish()
		var abandoned *listener.AbandonedError
		var e *shards.Error
		if !errors.As(err, &abandoned) || !errors.As(err, &e) || e.Shard != name(1) {
			t.Errorf("got %v, want an AbandonedError of test/jobs-1", err)
		}
		close(release)
	})
}
