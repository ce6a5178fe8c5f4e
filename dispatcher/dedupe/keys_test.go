package dedupe_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/dedupe"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
)

// both messages of a job that was sent twice are there; the second is deleted.
func TestWhatIsADuplicate(t *testing.T) {
	for name, c := range map[string]struct {
		first, second producer.SendOptions
		handled       bool // whether both are
	}{
		"the same job id":                 {producer.SendOptions{JobID: "7"}, producer.SendOptions{JobID: "7"}, false},
		"the same dedupe key":             {producer.SendOptions{DedupeKey: "7"}, producer.SendOptions{DedupeKey: "7"}, false},
		"the same dedupe key, two ids":    {producer.SendOptions{JobID: "1", DedupeKey: "7"}, producer.SendOptions{JobID: "2", DedupeKey: "7"}, false},
		"one id, two dedupe keys":         {producer.SendOptions{JobID: "1", DedupeKey: "7"}, producer.SendOptions{JobID: "1", DedupeKey: "8"}, true},
		"an id that is another's key":     {producer.SendOptions{JobID: "7"}, producer.SendOptions{DedupeKey: "7"}, true},
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
				if st.Outcomes[listener.Deleted] != int64(len(want)) || st.Outcomes[listener.Duplicate] != int64(2-len(want)) {
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
			b.send(name, producer.SendOptions{DedupeKey: "7"})
			b.run(o, r.handle, time.Minute)
		}
		r.want(b, "first", "second")

		b.queue = b.newQueue("kinds")
		var handled []listener.Kind
		for _, name := range []string{"resize", "email"} {
			k := kinds.Kind[job]{Name: name}
			handled = append(handled, k.Handle(r.handle, nil))
			for range 2 {
				if _, err := k.Producer(b.queue, nil).Send(b.Context(), job{name}, &producer.SendOptions{DedupeKey: "7"}); err != nil {
					b.Fatal(err)
				}
			}
		}
		l := must(listener.NewKinds(b.queue, handled, &listener.Options[any]{Duplicates: g, Concurrency: 1, Logger: o.Logger}))
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
		b.send("", producer.SendOptions{DedupeKey: "order 7/é?&kind=x"})
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
				b.send("first", producer.SendOptions{DedupeKey: "7"})
				var r runs
				o, _ := options(g)
				b.run(o, r.returning(result), 500*time.Millisecond)
				r.want(b, "first")
				b.send("second", producer.SendOptions{DedupeKey: "7"})
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
		if st.Outcomes[listener.Deleted] != 1 {
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
		if st.Outcomes[listener.Poisoned] != 2 {
			b.Fatalf("got state %+v, want both poisoned", st)
		}
		if _, err := poison.Redrive(b.Context(), b.queue, nil); err != nil {
			b.Fatal(err)
		}
		st = b.run(o, r.handle, time.Minute)
		r.want(b, "bad", "bad", "bad")
		if st.Outcomes[listener.Deleted] != 1 || st.Outcomes[listener.Duplicate] != 1 {
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
				if st.Outcomes[listener.Duplicate] != 1 || st.Outcomes[listener.Poisoned] != 0 {
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
		if st.Outcomes[listener.Snoozed] != 1 || st.Outcomes[listener.Duplicate] != 0 {
			b.Errorf("got state %+v, want it left to others", st)
		}
		b.wantDepth(1)
	})
}

// A batch has a result for each message, and those that succeeded are recorded.
func TestEachMessageOfABatchHasItsKey(t *testing.T) {
	eachGuard(t, func(b *bundle, g *dedupe.Guard) {
		for _, name := range []string{"good", "bad"} {
			b.send(name, producer.SendOptions{DedupeKey: name})
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
			b.send(name, producer.SendOptions{DedupeKey: name})
		}
		b.run(o, h, 500*time.Millisecond)
		r.want(b, "good", "bad", "bad")
	})
}
