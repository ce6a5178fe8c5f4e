package dedupe_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/claimcheck"
	"github.com/millrace/millrace/dedupe"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
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

// refuse returns a function that fails n times.
func refuse(n int) func() error {
	return func() error {
		if n--; n >= 0 {
			return &queue.Error{Op: "delete", Kind: queue.ErrUnauthorized}
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
		if st.Unsettled != 1 || st.Duplicates != 1 || st.Succeeded != 0 {
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
		if st.Duplicates != 0 || st.Succeeded != 1 || len(seen.of()) != 0 {
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
			if st.Lost != 1 || st.Duplicates != 1 {
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
			b.send("slow", producer.SendOptions{Dedupe: "7"})
			inner := b.queue
			b.queue = &brokenUpdates{inner, kind}
			var r runs
			o, _ := options(g)
			st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
				time.Sleep(15 * time.Second)
				return r.returning(errors.New("broken"))(ctx, m)
			}, 10*time.Second)
			b.queue = inner
			b.send("again", producer.SendOptions{Dedupe: "7"})
			b.run(o, r.handle, time.Second)
			if len(r.names) < 2 || st.Lost != 1 {
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
		if st.Lost != 1 || len(seen.of()) != 0 {
			b.Errorf("got state %+v, errors %v; want one lost and no error", st, seen.of())
		}
	})
}

// both messages of a job that was sent twice are there; the second is deleted.
func TestWhatIsADuplicate(t *testing.T) {
	for name, c := range map[string]struct {
		first, second producer.SendOptions
		handled       bool // whether both are
	}{
		"the same job id":                 {producer.SendOptions{JobID: "7"}, producer.SendOptions{JobID: "7"}, false},
		"the same dedupe key":             {producer.SendOptions{Dedupe: "7"}, producer.SendOptions{Dedupe: "7"}, false},
		"the same dedupe key, two ids":    {producer.SendOptions{JobID: "1", Dedupe: "7"}, producer.SendOptions{JobID: "2", Dedupe: "7"}, false},
		"one id, two dedupe keys":         {producer.SendOptions{JobID: "1", Dedupe: "7"}, producer.SendOptions{JobID: "1", Dedupe: "8"}, true},
		"an id that is another's key":     {producer.SendOptions{JobID: "7"}, producer.SendOptions{Dedupe: "7"}, true},
		"nothing":                         {producer.SendOptions{}, producer.SendOptions{}, true},
		"one key for two things it is of": {producer.SendOptions{Key: "7"}, producer.SendOptions{Key: "7"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(b *bundle, g *dedupe.Guard) {
				b.send("job", c.first)
				b.send("job", c.second)
				var r runs
				o, _ := options(g)
				st := b.run(o, r.handle, time.Minute)
				want := []string{"job"}
				if c.handled {
					want = append(want, "job")
				}
				r.want(b, want...)
				if st.Succeeded != int64(len(want)) || st.Duplicates != int64(2-len(want)) {
					b.Errorf("got state %+v, want %d successes, and else duplicates", st, len(want))
				}
				b.wantDepth(0)
			})
		})
	}
}

// A guard may serve several queues, and a queue several kinds.
func TestAKeyIsOfItsQueueAndItsKind(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		var r runs
		o, _ := options(g)
		for _, name := range []string{"first", "second"} {
			b.queue = b.newQueue(name)
			b.send(name, producer.SendOptions{Dedupe: "7"})
			b.run(o, r.handle, time.Minute)
		}
		r.want(b, "first", "second")

		b.queue = b.newQueue("kinds")
		var handled []listener.Kind
		for _, name := range []string{"resize", "email"} {
			k := kinds.Kind[job]{Name: name}
			handled = append(handled, k.Handle(r.handle, nil))
			for range 2 {
				if _, err := k.Producer(b.queue, nil).Send(b.Context(), job{name}, &producer.SendOptions{Dedupe: "7"}); err != nil {
					b.Fatal(err)
				}
			}
		}
		l := listener.NewKinds(b.queue, handled, &listener.Options[any]{Duplicates: g, Concurrency: 1, Logger: o.Logger})
		ctx, stop := context.WithTimeout(b.Context(), time.Minute)
		defer stop()
		if err := l.Run(ctx); err != nil {
			b.Error(err)
		}
		r.want(b, "first", "second", "resize", "email")
	})
}

func TestTheKeyOfAJobIsReadable(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send("", producer.SendOptions{Dedupe: "order 7/é?&kind=x"})
		b.send("", producer.SendOptions{JobID: "j7"})
		foreign, err := b.queue.Enqueue(b.Context(), `{"Name":""}`, nil)
		if err != nil {
			b.Fatal(err)
		}
		o, _ := options(b.shared(nil))
		b.run(o, (&runs{}).handle, time.Minute)
		want := []string{"test/jobs?dedupe=order+7%2F%C3%A9%3F%26kind%3Dx", "test/jobs?job=j7", "test/jobs?message=" + string(foreign.ID)}
		if got := b.keys(); !slices.Equal(got, want) {
			b.Errorf("got keys %q, want %q", got, want)
		}
	})
}

// Only a success is recorded. Each of these leaves the job to be handled, by way of another message.
func TestOnlyASuccessIsRecorded(t *testing.T) {
	broken := errors.New("broken")
	for name, result := range map[string]error{
		"a failure": broken, "poison": listener.Poison(broken), "a discard": listener.Discard(nil),
		"a snooze": listener.Snooze(time.Hour), "a retry": listener.Retry(time.Hour, broken),
	} {
		t.Run(name, func(t *testing.T) {
			eachGuard(t, func(b *bundle, g *dedupe.Guard) {
				b.send("first", producer.SendOptions{Dedupe: "7"})
				var r runs
				o, _ := options(g)
				b.run(o, r.returning(result), 500*time.Millisecond)
				r.want(b, "first")
				b.send("second", producer.SendOptions{Dedupe: "7"})
				b.run(o, r.handle, 500*time.Millisecond)
				r.want(b, "first", "second")
			})
		})
	}
}

// Saved progress is no success.
func TestAJobThatSavedAndFailedIsHandledAgain(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		b.send("begun", producer.SendOptions{})
		var r runs
		o, _ := options(g)
		st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
			if err := r.handle(ctx, m); err != nil || m.Body.Name == "half" {
				return err
			}
			if err := m.Save(ctx, job{"half"}); err != nil {
				b.Error(err)
			}
			return errors.New("broken")
		}, time.Minute)
		r.want(b, "begun", "half")
		if st.Succeeded != 1 {
			b.Errorf("got state %+v, want a success", st)
		}
	})
}

// A message that was poison was not handled: redriven, it is. If its job was handled by way of another
// message meanwhile, it is a duplicate.
func TestARedrivenJobIsHandledOnce(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		b.send("bad", producer.SendOptions{JobID: "7"})
		b.send("bad", producer.SendOptions{JobID: "7"})
		var r runs
		o, _ := options(g)
		st := b.run(o, r.returning(listener.Poison(errors.New("broken"))), 500*time.Millisecond)
		if st.Poisoned != 2 {
			b.Fatalf("got state %+v, want both poisoned", st)
		}
		if _, err := poison.Redrive(b.Context(), b.queue.Sibling(poison.Suffix), &poison.RedriveOptions{To: b.queue}); err != nil {
			b.Fatal(err)
		}
		st = b.run(o, r.handle, time.Minute)
		r.want(b, "bad", "bad", "bad")
		if st.Succeeded != 1 || st.Duplicates != 1 {
			b.Errorf("got state %+v, want a success and a duplicate", st)
		}
	})
}

// A message without an envelope counts deliveries, and a handled one may be out of them.
func TestAJobThatWasHandledIsNotPoison(t *testing.T) {
	for name, text := range map[string]string{
		"without an envelope":        `{"Name":"old"}`,
		"out of attempts":            "millrace/1?id=7&n=9\n" + `{"Name":"old"}`,
		"with too many lost starts":  "millrace/1?id=7&st=1\n" + `{"Name":"old"}`,
		"marked and not to be moved": "millrace/1?id=7&px=rejected\n" + `{"Name":"old"}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				m, err := b.queue.Enqueue(b.Context(), text, nil)
				if err != nil {
					b.Fatal(err)
				}
				for range 3 {
					if _, err := b.queue.Dequeue(b.Context(), 1, time.Second); err != nil {
						b.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				g := b.memory(nil)
				b.record(g, "test/jobs?message="+string(m.ID), "test/jobs?job=7")
				var r runs
				o, _ := options(g)
				o.Poison.MaxLost = 1
				st := b.run(o, r.handle, time.Minute)
				r.want(b)
				if st.Duplicates != 1 || st.Poisoned != 0 {
					b.Errorf("got state %+v, want a duplicate", st)
				}
				b.wantDepth(0)
			})
		})
	}
}

// What this worker cannot read has no key that it could trust.
func TestAMessageForANewerWorkerIsLeftToIt(t *testing.T) {
	bubble(t, func(b *bundle) {
		if _, err := b.queue.Enqueue(b.Context(), "millrace/2?id=7&kd=new\n{}", nil); err != nil {
			b.Fatal(err)
		}
		g := b.memory(nil)
		b.record(g, "test/jobs?job=7", "test/jobs?kind=new&job=7")
		o, _ := options(g)
		st := b.run(o, (&runs{}).handle, time.Second)
		if st.Snoozed != 1 || st.Duplicates != 0 {
			b.Errorf("got state %+v, want it left to others", st)
		}
		b.wantDepth(1)
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
		if st.Duplicates != 1 {
			b.Errorf("got state %+v, want a duplicate", st)
		}
		b.wantDepth(0)
	})
}

// A shared guard costs two calls for a message; for a duplicate one, or none where it was handled. The
// queue sees no more requests than without a guard.
func TestAGuardCostsTwoCallsForAMessage(t *testing.T) {
	bubble(t, func(b *bundle) {
		const jobs = 20
		requests := func(d listener.Duplicates) int64 {
			for range jobs {
				b.send("job", producer.SendOptions{})
			}
			o, _ := options(d)
			st := b.run(o, (&runs{}).handle, time.Minute)
			if st.Succeeded != jobs {
				b.Errorf("got state %+v, want %d successes", st, jobs)
			}
			return st.Requests
		}
		without := requests(nil)
		if memory, shared := requests(b.memory(nil)), requests(b.shared(nil)); memory != without || shared != without {
			b.Errorf("got %d requests in memory and %d shared, want %d", memory, shared, without)
		}
		if b.store.count("stat") != jobs || b.store.count("put") != jobs {
			b.Errorf("got %v calls, want %d of each", b.store.calls, jobs)
		}

		own, other := b.shared(nil), b.shared(nil)
		b.record(own, "test/jobs?job=7")
		stats := b.store.count("stat")
		for i, g := range []*dedupe.Guard{own, other} {
			b.send("job", producer.SendOptions{JobID: "7"})
			o, _ := options(g)
			b.run(o, (&runs{}).handle, time.Minute)
			if got := b.store.count("stat") - stats; got != i {
				b.Errorf("got %d lookups of a duplicate, want %d", got, i)
			}
		}
	})
}

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
		if st.Succeeded != 2 || st.Duplicates != 1 {
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

// guard is a guard of the test's making.
type guard struct {
	handled func(ctx context.Context, key string) (bool, error)
	record  func(ctx context.Context, key string) error
}

func (g guard) Handled(ctx context.Context, key string) (bool, error) {
	if g.handled == nil {
		return false, nil
	}
	return g.handled(ctx, key)
}

func (g guard) Record(ctx context.Context, key string) error {
	if g.record == nil {
		return nil
	}
	return g.record(ctx, key)
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
				if st.Succeeded != 1 || st.Received != 1 || len(seen.of()) != 1 {
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
		if st.Lost != 1 || st.Succeeded != 1 {
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
		if head := b.headOf(); st.GivenBack != 1 || head.Attempts != 0 || head.Settled != 1 {
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
		if st.Duplicates != 1 {
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

// A guard that panics or ends its goroutine is one that fails.
func TestAGuardThatPanicsFailsNoJob(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("broken") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.send("job", producer.SendOptions{})
				var r runs
				o, seen := options(guard{
					handled: func(context.Context, string) (bool, error) { end(); return true, nil },
					record:  func(context.Context, string) error { end(); return nil },
				})
				st := b.run(o, r.handle, time.Minute)
				r.want(b, "job")
				if st.Succeeded != 1 || len(seen.of()) != 2 {
					b.Errorf("got state %+v, errors %v; want a success and two errors", st, seen.of())
				}
			})
		})
	}
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

// Two messages of a job at once: neither waits for the other.
func TestTwoThatRunAtOnceAreNotExcluded(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		b.send("job", producer.SendOptions{Dedupe: "7"})
		b.send("job", producer.SendOptions{Dedupe: "7"})
		var r runs
		var both sync.WaitGroup
		both.Add(2)
		o, _ := options(g)
		o.Concurrency = 2
		st := b.run(o, func(ctx context.Context, m *listener.Message[job]) error {
			both.Done()
			both.Wait()
			return r.handle(ctx, m)
		}, time.Minute)
		r.want(b, "job", "job")
		if st.Succeeded != 2 {
			b.Errorf("got state %+v, want two successes", st)
		}
	})
}

// A batch has a result for each message, and those that succeeded are recorded.
func TestEachMessageOfABatchHasItsKey(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		for _, name := range []string{"good", "bad"} {
			b.send(name, producer.SendOptions{Dedupe: name})
		}
		var r runs
		o, _ := options(g)
		o.Concurrency = 2
		first := true
		h := listener.Batch(func(ctx context.Context, ms []*listener.Message[job]) []error {
			results := make([]error, len(ms))
			for i, m := range ms {
				if err := r.handle(ctx, m); m.Body.Name == "bad" && first {
					results[i] = errors.Join(err, errors.New("broken"))
				}
			}
			first = false
			return results
		}, 2, time.Second)
		b.run(o, h, 500*time.Millisecond)
		for _, name := range []string{"good", "bad"} {
			b.send(name, producer.SendOptions{Dedupe: name})
		}
		b.run(o, h, 500*time.Millisecond)
		r.want(b, "good", "bad", "bad")
	})
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
		if st := b.run(o, (&runs{}).handle, time.Minute); st.Duplicates != 1 {
			b.Errorf("got state %+v, want a duplicate", st)
		}
		for body, err := range claims.Waiting(b.Context()) {
			b.Errorf("got %+v, %v; want no body left", body, err)
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
		if st := l.State(); st.Succeeded != 10 {
			b.Errorf("got state %+v, want ten successes beside the lookup", st)
		}
		close(release)
		synctest.Wait()
		if st := l.State(); st.Duplicates != 1 || st.Running != 0 || st.Settling != 0 {
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
		if st := l.State(); most != 4 || st.Succeeded != 45 || st.Duplicates != 5 {
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
