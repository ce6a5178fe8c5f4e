package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/codec/claimcheck"
	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
)

// brokenDeletes is a queue whose deletes fail as long as broken returns an error.
type brokenDeletes struct {
	queue.Queue
	broken func() error
}

func (q *brokenDeletes) Delete(ctx context.Context, l queue.Lease) error {
	if err := q.broken(); err != nil {
		return err
	}
	return q.Queue.Delete(ctx, l)
}

// refuse returns a function that fails n times, in a way that is not tried again.
func refuse(n int) func() error {
	return func() error {
		if n--; n >= 0 {
			return &queue.Error{Op: "delete", Kind: queue.ErrInvalid}
		}
		return nil
	}
}

// Q-14, B-09: a message that was handled and not deleted comes again, and is deleted.
func TestAJobWhoseDeleteFailedIsNotHandledAgain(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		b.send("once", producer.SendOptions{})
		b.queue = &brokenDeletes{b.queue, refuse(1)}
		var r runs
		o, _ := options(g)
		st := b.run(o, r.handle, time.Minute)
		r.want(b, "once")
		if st.Outcomes[listener.Unsettled] != 1 || st.Outcomes[listener.Duplicate] != 1 || st.Outcomes[listener.Deleted] != 0 {
			b.Errorf("got state %+v, want one unsettled and one duplicate", st)
		}
		b.wantDepth(0)
	})
}

// The same without a guard, so that the test above can fail.
func TestWithoutAGuardAJobWhoseDeleteFailedIsHandledAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("twice", producer.SendOptions{})
		b.queue = &brokenDeletes{b.queue, refuse(1)}
		var r runs
		var none *dedupe.Guard // is as good as nothing
		o, seen := options(none)
		st := b.run(o, r.handle, time.Minute)
		r.want(b, "twice", "twice")
		if st.Outcomes[listener.Duplicate] != 0 || st.Outcomes[listener.Deleted] != 1 || len(seen.of()) != 0 {
			b.Errorf("got state %+v, errors %v; want a success", st, seen.of())
		}
	})
}

// brokenUpdates is a queue whose leases cannot be renewed.
type brokenUpdates struct {
	queue.Queue
	kind error
}

func (q *brokenUpdates) Update(context.Context, queue.Lease, string, time.Duration) (queue.Lease, error) {
	return queue.Lease{}, &queue.Error{Op: "update", Kind: q.kind}
}

// A handler that returns after its lease has ended, by our clock or because the service said so, has
// handled the job all the same.
func TestAJobWhoseLeaseEndedBeforeItsSuccessIsNotHandledAgain(t *testing.T) {
	for _, kind := range []error{queue.ErrUnauthorized, queue.ErrReceiptMismatch} {
		eachGuard(t, func(b *bundle, g *dedupe.Guard) {
			b.send("slow", producer.SendOptions{})
			inner := b.queue
			b.queue = &brokenUpdates{inner, kind}
			var r runs
			o, _ := options(g)
			st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
				time.Sleep(15 * time.Second) // over the visibility
				other, err := inner.Dequeue(b.Context(), 1, 20*time.Second)
				if len(other) != 1 || err != nil || ctx.Err() == nil {
					b.Errorf("got %d messages, %v; want that of the handler, whose lease has ended", len(other), err)
				}
				return r.handle(ctx, m)
			}, 2*time.Minute)
			r.want(b, "slow")
			if st.Outcomes[listener.Lost] != 1 || st.Outcomes[listener.Duplicate] != 1 {
				b.Errorf("%v: got state %+v, want one lost and one duplicate", kind, st)
			}
			b.wantDepth(0)
		})
	}
}

// A failure without a lease is none either: another worker has the job, or will.
func TestAJobThatFailedAfterItsLeaseEndedIsHandledAgain(t *testing.T) {
	for _, kind := range []error{queue.ErrUnauthorized, queue.ErrReceiptMismatch} {
		eachGuard(t, func(b *bundle, g *dedupe.Guard) {
			b.send("slow", producer.SendOptions{DedupeKey: "7"})
			inner := b.queue
			b.queue = &brokenUpdates{inner, kind}
			var r runs
			o, _ := options(g)
			st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
				time.Sleep(15 * time.Second)
				return r.returning(errors.New("broken"))(ctx, m)
			}, 10*time.Second)
			b.queue = inner
			b.send("again", producer.SendOptions{DedupeKey: "7"})
			b.run(o, r.handle, time.Second)
			if len(r.names) < 2 || st.Outcomes[listener.Lost] != 1 {
				b.Errorf("%v: handled %q, state %+v; want the job handled again", kind, r.names, st)
			}
		})
	}
}

// Nothing waits for the record of a job whose lease is lost, so a slow one has time.
func TestARecordWithoutALeaseHasTime(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("slow", producer.SendOptions{})
		b.queue = &brokenUpdates{b.queue, queue.ErrReceiptMismatch}
		o, seen := options(guard{record: func(ctx context.Context, _ string) error {
			select {
			case <-time.After(10 * time.Second):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		}})
		st := b.run(o, func(context.Context, *listener.Message[job]) error { time.Sleep(15 * time.Second); return nil }, 5*time.Second)
		if st.Outcomes[listener.Lost] != 1 || len(seen.of()) != 0 {
			b.Errorf("got state %+v, errors %v; want one lost and no error", st, seen.of())
		}
	})
}

// Two processes share a store; the second deletes what the first handled.
func TestASharedGuardKnowsWhatOthersHandled(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("once", producer.SendOptions{})
		inner := b.queue
		b.queue = &brokenDeletes{inner, refuse(1)}
		var r runs
		o, _ := options(b.shared(nil))
		b.run(o, r.handle, time.Second)
		b.queue = inner
		o, _ = options(b.shared(nil)) // of another process
		st := b.run(o, r.handle, time.Minute)
		r.want(b, "once")
		if st.Outcomes[listener.Duplicate] != 1 {
			b.Errorf("got state %+v, want a duplicate", st)
		}
		b.wantDepth(0)
	})
}

// A shared guard costs two calls for a message; for a duplicate as many, or none where it was handled.
// The queue sees no more requests than without a guard.
func TestAGuardCostsTwoCallsForAMessage(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs = 20
		requests := func(d listener.Duplicates) int64 {
			for range jobs {
				b.send("job", producer.SendOptions{})
			}
			o, _ := options(d)
			st := b.run(o, (&runs{}).handle, time.Minute)
			if st.Outcomes[listener.Deleted] != jobs {
				b.Errorf("got state %+v, want %d successes", st, jobs)
			}
			return st.Requests
		}
		without := requests(nil)
		if memory, shared := requests(b.memory(nil)), requests(b.shared(nil)); memory != without || shared != without {
			b.Errorf("got %d requests in memory and %d shared, want %d", memory, shared, without)
		}
		if b.store.count("create") != jobs || b.store.count("put") != jobs || len(b.store.calls) != 2 {
			b.Errorf("got %v calls, want %d creates and as many puts", b.store.calls, jobs)
		}

		own, other := b.shared(nil), b.shared(nil)
		b.record(own, "test/jobs?job=7")
		lookups := func() int { return b.store.count("create") + b.store.count("stat") }
		before := lookups()
		for i, g := range []*dedupe.Guard{own, other} {
			b.send("job", producer.SendOptions{JobID: "7"})
			o, _ := options(g)
			b.run(o, (&runs{}).handle, time.Minute)
			if got := lookups() - before; got != 2*i {
				b.Errorf("got %d lookups of a duplicate, want %d", got, 2*i)
			}
		}
	})
}

// The record follows the handler and comes before the delete.
func TestTheRecordComesBetweenTheHandlerAndTheDelete(t *testing.T) {
	bubble(t, func(b *bundle) {
		var steps []string
		note := func(what string) { steps = append(steps, what) } // one job at a time
		b.send("job", producer.SendOptions{})
		b.queue = &brokenDeletes{b.queue, func() error { note("delete"); return nil }}
		o, _ := options(guard{
			handled: func(context.Context, string) (bool, error) { note("look up"); return false, nil },
			record:  func(context.Context, string) error { note("record"); return nil },
		})
		b.run(o, func(context.Context, *listener.Message[job]) error { note("handle"); return nil }, time.Minute)
		if want := []string{"look up", "handle", "record", "delete"}; !slices.Equal(steps, want) {
			b.Errorf("got steps %q, want %q", steps, want)
		}
	})
}

// Jobs that are sent twice in a row: a double click, a request that is repeated.
func TestATwinOfAJobInProgressIsADuplicate(t *testing.T) {
	const jobs = 200
	for name, took := range map[string]time.Duration{"short": time.Millisecond, "longer than a wait": 3 * time.Second, "longer than a lease": 25 * time.Second} {
		for _, c := range []struct {
			name      string
			processes int
			guard     func(*bundle) *dedupe.Guard
		}{
			{"one process in memory", 1, func(b *bundle) *dedupe.Guard { return b.memory(nil) }},
			{"one process with a store", 1, func(b *bundle) *dedupe.Guard { return b.shared(nil) }},
			{"three processes with a store", 3, func(b *bundle) *dedupe.Guard { return b.shared(nil) }},
		} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				bubble(t, func(b *bundle) {
					for i := range jobs {
						for range 2 {
							b.send(fmt.Sprint(i), producer.SendOptions{DedupeKey: fmt.Sprint(i)})
						}
					}
					var r runs
					var duplicates, poisoned atomic.Int64
					var all sync.WaitGroup
					begin := time.Now()
					var last atomic.Int64
					for i := range c.processes {
						o, _ := options(c.guard(b))
						o.Concurrency, o.Seed = 64, uint64(i)
						o.Observer.Settled = func(_ listener.Delivery, out listener.Outcome, _ time.Duration) {
							if out == listener.Duplicate || out == listener.Deleted {
								last.Store(int64(time.Since(begin)))
							}
						}
						all.Go(func() {
							st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
								time.Sleep(took)
								return r.handle(ctx, m)
							}, 10*time.Minute)
							duplicates.Add(st.Outcomes[listener.Duplicate])
							poisoned.Add(st.Outcomes[listener.Poisoned])
						})
					}
					all.Wait()
					b.Logf("%d of %d twins recognized, %d handlers ran, all settled after %v", duplicates.Load(), jobs, len(r.names), time.Duration(last.Load()))
					if duplicates.Load() != jobs || len(r.names) != jobs || poisoned.Load() != 0 {
						b.Errorf("got %d duplicates, %d runs and %d poisoned, want %d, %d and 0", duplicates.Load(), len(r.names), poisoned.Load(), jobs, jobs)
					}
					b.wantDepth(0)
				})
			})
		}
	}
}

// The observer, the log's error and the counts see a duplicate.
func TestADuplicateIsReported(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := b.memory(nil)
		b.record(g, "test/jobs?job=7")
		b.send("done", producer.SendOptions{JobID: "7"})
		o, seen := options(g)
		var outcomes []listener.Outcome
		o.Observer.Settled = func(_ listener.Delivery, o listener.Outcome, _ time.Duration) { outcomes = append(outcomes, o) }
		b.run(o, (&runs{}).handle, time.Minute)
		if !slices.Equal(outcomes, []listener.Outcome{listener.Duplicate}) {
			b.Errorf("got outcomes %v, want a duplicate", outcomes)
		}
		var failed *listener.DeliveryError
		if len(seen.all) != 1 || !errors.As(seen.all[0], &failed) || failed.Outcome != listener.Duplicate || failed.Job != "7" {
			b.Errorf("got errors %v, want one of the duplicate", seen.all)
		}
	})
}

// No message needs the body of a job that was handled.
func TestTheBodyOfADuplicateIsGivenUp(t *testing.T) {
	bubble(t, func(b *bundle) {
		bodies := blob.Memory()
		claims, err := claimcheck.New(bodies, "bodies", &claimcheck.Options{Limit: 1})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := producer.New(b.queue, &producer.Options[job]{Claims: claims}).Send(b.Context(), job{"large"}, &producer.SendOptions{JobID: "7"}); err != nil {
			b.Fatal(err)
		}
		g := b.memory(nil)
		b.record(g, "test/jobs?job=7")
		o, _ := options(g)
		o.Claims = claims
		if st := b.run(o, (&runs{}).handle, time.Minute); st.Outcomes[listener.Duplicate] != 1 {
			b.Errorf("got state %+v, want a duplicate", st)
		}
		for body, err := range claims.List(b.Context()) {
			if err != nil || !body.Settled {
				b.Errorf("got %+v, %v; want no body left", body, err)
			}
		}
	})
}

// A duplicate frees its slot, and the rest of its batch does not wait for the lookup.
func TestALookupHoldsUpNoOtherMessage(t *testing.T) {
	bubble(t, func(b *bundle) {
		release := make(chan struct{})
		o, _ := options(guard{handled: func(_ context.Context, key string) (bool, error) {
			if key == "test/jobs?job=slow" {
				<-release
				return true, nil
			}
			return false, nil
		}})
		o.Concurrency = 2
		var r runs
		b.send("slow", producer.SendOptions{JobID: "slow"})
		l := listener.New(b.queue, r.handle, o)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait() // a dequeue for both slots has brought one message
		for range 10 {
			b.send("quick", producer.SendOptions{})
		}
		time.Sleep(15 * time.Second)
		if st := l.State(); st.Outcomes[listener.Deleted] != 10 {
			b.Errorf("got state %+v, want ten successes beside the lookup", st)
		}
		close(release)
		synctest.Wait()
		if st := l.State(); st.Outcomes[listener.Duplicate] != 1 || st.Running != 0 || st.Settling != 0 {
			b.Errorf("got state %+v, want the duplicate deleted", st)
		}
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
}

// Duplicates and jobs that are not free one slot each, never more.
func TestWithAGuardNoMoreHandlersRunThanSlots(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := b.memory(nil)
		b.record(g, "test/jobs?job=7")
		o, _ := options(g)
		o.Concurrency = 4
		var mu sync.Mutex
		running, most := 0, 0
		count := func(n int) {
			mu.Lock()
			defer mu.Unlock()
			running += n
			most = max(most, running)
		}
		l := listener.New(b.queue, func(context.Context, *listener.Message[job]) error {
			count(1)
			defer count(-1)
			time.Sleep(time.Second)
			return nil
		}, o)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		for range 5 { // one at a time, which leaves slots of its dequeue unused
			b.send("duplicate", producer.SendOptions{JobID: "7"})
			time.Sleep(15 * time.Second)
			b.send("job", producer.SendOptions{})
			time.Sleep(15 * time.Second)
		}
		for range 40 {
			b.send("job", producer.SendOptions{})
		}
		time.Sleep(time.Minute)
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if st := l.State(); most != 4 || st.Outcomes[listener.Deleted] != 45 || st.Outcomes[listener.Duplicate] != 5 {
			b.Errorf("got %d handlers at once and state %+v, want 4, 45 successes and 5 duplicates", most, st)
		}
	})
}

// The log tells duplicates from failures of the guard, and both name the job.
func TestTheLogNamesTheJob(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("done", producer.SendOptions{JobID: "7"})
		b.send("unknown", producer.SendOptions{JobID: "8"})
		o, _ := options(guard{handled: func(_ context.Context, key string) (bool, error) {
			if key == "test/jobs?job=7" {
				return true, nil
			}
			return false, errors.New("no answer")
		}})
		var log strings.Builder
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		b.run(o, (&runs{}).handle, time.Minute)
		for _, want := range []string{
			`level=INFO msg="delivery duplicate" queue=test/jobs message=`, `job=7 attempt=1 outcome=duplicate error="the job was handled before"`,
			`level=WARN msg="duplicates may be handled" queue=test/jobs message=`, `job=8 attempt=1 handled=false error="no answer"`, `duplicates=1`,
		} {
			if !strings.Contains(log.String(), want) {
				b.Errorf("got log\n%swant %s", log.String(), want)
			}
		}
	})
}

// The twins of a long job leave the slots to other jobs.
func TestTwinsLeaveTheSlotsToOthers(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		for range 40 {
			b.send("long", producer.SendOptions{DedupeKey: "7"})
		}
		for range 20 {
			b.send("short", producer.SendOptions{})
		}
		var r runs
		o, _ := options(g)
		o.Concurrency = 8
		l := listener.New(b.queue, func(ctx context.Context, m *listener.Message[job]) error {
			if m.Body.Name == "long" {
				time.Sleep(10 * time.Minute)
			}
			return r.handle(ctx, m)
		}, o)
		ctx, stop := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		time.Sleep(5 * time.Second)
		r.want(b, slices.Repeat([]string{"short"}, 20)...)
		time.Sleep(20 * time.Minute)
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		r.want(b, append(slices.Repeat([]string{"short"}, 20), "long")...)
		if st := l.State(); st.Outcomes[listener.Duplicate] != 39 || st.Outcomes[listener.Poisoned] != 0 || st.Errors != 39 {
			b.Errorf("got %d duplicates, %d poisoned and %d errors, want 39, none, and nothing but the duplicates reported", st.Outcomes[listener.Duplicate], st.Outcomes[listener.Poisoned], st.Errors)
		}
		b.Logf("requests: %+v", l.State().ByCause)
	})
}
