package dedupe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// The store fails: the job is handled and its message deleted, and each failure is reported.
func TestAnOutageOfTheStoreFailsNoJob(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.store.before = func(context.Context, string) error { return blob.ErrUnavailable }
		b.send("first", producer.SendOptions{JobID: "7"})
		b.send("second", producer.SendOptions{JobID: "8"})
		b.send("first", producer.SendOptions{JobID: "7"}) // known to this process
		var r runs
		o, seen := options(b.shared(nil))
		st := b.run(o, r.handle, time.Minute)
		r.want(b, "first", "second")
		if st.Outcomes[listener.Deleted] != 2 || st.Outcomes[listener.Duplicate] != 1 {
			b.Errorf("got state %+v, want two successes and a duplicate", st)
		}
		var got []bool
		for _, err := range seen.of() {
			got = append(got, err.Handled)
			if !errors.Is(err, blob.ErrUnavailable) || err.Job == "" {
				b.Errorf("got %v, want the store's error and the job", err)
			}
		}
		if want := []bool{false, true, false, true}; !slices.Equal(got, want) {
			b.Errorf("got errors after the handler %v, want %v", got, want)
		}
		b.wantDepth(0)
	})
}

// guard is a guard of the test's making. Its functions may be nil.
type guard struct {
	handled func(ctx context.Context, key string) (bool, error)
	record  func(ctx context.Context, key string) error
}

func (g guard) Begin(ctx context.Context, key string, _ queue.ID, _ time.Duration) (listener.HeldJob, error) {
	known, err := false, error(nil)
	if g.handled != nil {
		known, err = g.handled(ctx, key)
	}
	if known && err == nil {
		return nil, listener.ErrHandled
	}
	return heldJob{g, key}, err
}

// heldJob is a job that a guard of the test's making holds.
type heldJob struct {
	guard guard
	key   string
}

func (heldJob) Extend(context.Context, time.Duration) {}
func (heldJob) Release(context.Context, bool)         {}

func (h heldJob) Record(ctx context.Context) error {
	if h.guard.record == nil {
		return nil
	}
	return h.guard.record(ctx, h.key)
}

// A lookup or a record that hangs has a part of the lease, never all of it.
func TestAGuardThatHangsCostsNoLease(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	for name, g := range map[string]guard{
		"before": {handled: func(ctx context.Context, _ string) (bool, error) { return false, hang(ctx) }},
		"after":  {record: func(ctx context.Context, _ string) error { return hang(ctx) }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.send("slow", producer.SendOptions{})
				begin := time.Now()
				b.queue = &brokenDeletes{b.queue, func() error {
					if time.Since(begin) > 9*time.Second {
						b.Errorf("got the delete after %v, want it within the lease", time.Since(begin))
					}
					return nil
				}}
				var r runs
				o, seen := options(g)
				st := b.run(o, r.handle, time.Minute)
				r.want(b, "slow")
				if st.Outcomes[listener.Deleted] != 1 || st.Received != 1 || len(seen.of()) != 1 {
					b.Errorf("got state %+v and errors %v, want a success and one error", st, seen.of())
				}
			})
		})
	}
}

// A lookup that ignores its context until the lease is over: another worker may have the message.
func TestAMessageWhoseLeaseEndsDuringTheLookupIsNotHandled(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("late", producer.SendOptions{})
		var r runs
		first := true
		o, _ := options(guard{handled: func(context.Context, string) (bool, error) {
			if first {
				first = false
				time.Sleep(12 * time.Second)
			}
			return false, nil
		}})
		st := b.run(o, r.handle, time.Minute)
		r.want(b, "late")
		if st.Outcomes[listener.Lost] != 1 || st.Outcomes[listener.Deleted] != 1 {
			b.Errorf("got state %+v, want one lost, then a success", st)
		}
	})
}

// A worker that stops while it looks up gives the message back without an attempt.
func TestAStopDuringTheLookupGivesTheMessageBack(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("waits", producer.SendOptions{})
		var r runs
		o, _ := options(guard{handled: func(context.Context, string) (bool, error) {
			time.Sleep(5 * time.Second)
			return false, nil
		}})
		o.Grace = time.Second
		st := b.run(o, r.handle, 2*time.Second)
		r.want(b)
		if head := b.headOf(); st.Outcomes[listener.Returned] != 1 || head.Attempts != 0 || head.Settled != 1 {
			b.Errorf("got state %+v and head %+v, want it given back and accounted for", st, head)
		}
	})
}

// A duplicate that is found at the stop is deleted.
func TestADuplicateIsDeletedWhileTheWorkerStops(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("done", producer.SendOptions{})
		var r runs
		o, _ := options(guard{handled: func(context.Context, string) (bool, error) {
			time.Sleep(5 * time.Second)
			return true, nil
		}})
		o.Grace = time.Second
		st := b.run(o, r.handle, 2*time.Second)
		r.want(b)
		if st.Outcomes[listener.Duplicate] != 1 {
			b.Errorf("got state %+v, want a duplicate", st)
		}
		b.wantDepth(0)
	})
}

// An answer beside an error is none.
func TestAnAnswerWithAnErrorDeletesNothing(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("job", producer.SendOptions{})
		var r runs
		o, seen := options(guard{handled: func(context.Context, string) (bool, error) { return true, errors.New("unsure") }})
		b.run(o, r.handle, time.Minute)
		r.want(b, "job")
		if len(seen.of()) != 1 {
			b.Errorf("got errors %v, want one", seen.of())
		}
	})
}

// A guard that panics is one that fails.
func TestAGuardThatPanicsFailsNoJob(t *testing.T) {
	for name, g := range map[string]guard{
		"before": {handled: func(context.Context, string) (bool, error) { panic("broken") }},
		"after":  {record: func(context.Context, string) error { panic("broken") }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.send("job", producer.SendOptions{})
				var r runs
				o, seen := options(g)
				st := b.run(o, r.handle, time.Minute)
				r.want(b, "job")
				if st.Outcomes[listener.Deleted] != 1 || len(seen.of()) != 1 {
					b.Errorf("got state %+v, errors %v; want a success and an error", st, seen.of())
				}
			})
		})
	}
}

// A store that hangs holds up the jobs in progress once, and then one job now and then.
func TestAStoreThatHangsIsLeftAlone(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs = 200
		b.store.before = func(ctx context.Context, _ string) error { <-ctx.Done(); return context.Cause(ctx) }
		for range jobs {
			b.send("job", producer.SendOptions{})
		}
		g := b.shared(nil)
		var r runs
		o, _ := options(g)
		o.Concurrency = 64
		begin, last := time.Now(), time.Duration(0)
		o.Observer.Settled = func(listener.Delivery, listener.Outcome, time.Duration) {
			r.mu.Lock()
			defer r.mu.Unlock()
			last = time.Since(begin)
		}
		st := b.run(o, r.handle, 10*time.Minute)
		calls := b.store.count("create") + b.store.count("stat") + b.store.count("put")
		b.Logf("%d jobs took %v, with %d calls of the store: %v", st.Outcomes[listener.Deleted], last, calls, b.store.calls)
		if st.Outcomes[listener.Deleted] != jobs || calls > o.Concurrency {
			b.Errorf("got %d successes and %d calls of the store, want %d and at most %d", st.Outcomes[listener.Deleted], calls, jobs, o.Concurrency)
		}
	})
}
