package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// slow is a policy of instances that handle one message a second.
var slow = scaling.Policy{Slots: 1, Handling: time.Second, Max: 10, DownAfter: 10 * time.Minute}

// a metric that fails for an hour is unknown all the time and never zero: nothing is removed, and everything works again
// when it does.
func TestAMetricThatFailsForAnHourIsUnknown(t *testing.T) {
	for name, failure := range map[string]func(context.Context) error{
		"an error":    fails(&queue.Error{Op: "get properties", Kind: queue.ErrUnavailable, Status: 500}),
		"no response": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"a panic":     func(context.Context) error { panic("no queue") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &breakable{Queue: created(t, must(localqueue.New(nil)), "jobs")}
				p := &platform{n: 7}
				a := start(t, agent.Options{}, agent.Pool{Name: "emails", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
				fill(t, q, 7*60*8/10)
				after(time.Minute)
				before := p.get()
				take(t, q, 1000)
				q.breaks(failure)
				after(time.Hour)
				if n := p.get(); n != before {
					t.Errorf("while nothing is known: got %d instances, want the %d there were", n, before)
				}
				state := a.agent.State()[0]
				if s := state.Sample; s.Depth.IsKnown() || s.Visible.IsKnown() || s.HeadAge.IsKnown() || s.Arrival.IsKnown() || s.Service.IsKnown() {
					t.Errorf("sample while nothing is known: %+v", s)
				}
				errs := a.errors()
				if len(errs) < 500 || len(state.Errors) != 2 {
					t.Errorf("got %d errors in an hour and %v in the state, want two for each measurement", len(errs), state.Errors)
				}
				for _, err := range errs[:2] {
					if text := err.Error(); !strings.Contains(text, "pool emails: ") || !strings.Contains(text, "test/jobs") || !strings.Contains(text, "unknown") || strings.Contains(text, "\n") {
						t.Errorf("the error does not say where and what follows, on one line: %v", text)
					}
				}
				q.breaks(nil)
				after(30 * time.Minute)
				if n := p.get(); n != 1 {
					t.Errorf("half an hour later: got %d instances, want 1", n)
				}
				if errs := a.agent.State()[0].Errors; len(errs) != 0 {
					t.Errorf("errors in the state afterwards: %v", errs)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// of several queues the one that fails makes the sum unknown, and its error names it.
func TestOneFailingQueueOfSeveralMakesTheSumUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		first, second := &breakable{Queue: created(t, e, "first")}, &breakable{Queue: created(t, e, "second")}
		fill(t, first, 3)
		fill(t, second, 4)
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{first, second}, Actuator: &platform{n: 1}})
		after(time.Second)
		s := a.agent.State()[0].Sample
		if depth, known := s.Depth.Get(); !known || depth != 7 {
			t.Errorf("depth: got %v %t, want 7", depth, known)
		}
		if visible, known := s.Visible.Get(); !known || visible != 7 {
			t.Errorf("visible: got %v %t, want 7", visible, known)
		}
		if age, known := s.HeadAge.Get(); !known || age != 0 {
			t.Errorf("head age: got %v %t, want 0", age, known)
		}
		second.breaks(fails(&queue.Error{Op: "get properties", Kind: queue.ErrQueueMissing}))
		after(10 * time.Second)
		s = a.agent.State()[0].Sample
		if s.Depth.IsKnown() || s.Visible.IsKnown() || s.HeadAge.IsKnown() {
			t.Errorf("with one queue missing: got %+v, want unknown figures", s)
		}
		errs := a.errors()
		if len(errs) != 1 || !errors.Is(errs[0], queue.ErrQueueMissing) || !strings.Contains(errs[0].Error(), "of test/second") || !strings.Contains(errs[0].Error(), "create the queue") {
			t.Errorf("errors: %v", errs)
		}
		second.breaks(nil)
		after(10 * time.Second)
		s = a.agent.State()[0].Sample
		if age, known := s.HeadAge.Get(); !known || age != 20*time.Second || s.Depth.Or(0) != 7 {
			t.Errorf("afterwards: got %+v, want depth 7 and an age of 20 s", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// a queue that hangs, even without regard to its context, delays no other pool, and is not called again before it returns.
func TestAHungQueueDelaysNoOtherPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		hung, good := &breakable{Queue: created(t, e, "hung")}, created(t, e, "good")
		release := make(chan struct{})
		hung.breaks(func(context.Context) error { <-release; return nil })
		one, two := &platform{n: 3}, &platform{n: 1}
		a := start(t, agent.Options{},
			agent.Pool{Name: "hung", Queues: []queue.Queue{hung}, Actuator: one, Policy: slow},
			agent.Pool{Name: "good", Queues: []queue.Queue{good}, Actuator: two, Policy: slow})
		fill(t, good, 600)
		after(time.Minute)
		if n := two.get(); n != 10 {
			t.Errorf("the other pool: got %d instances, want 10", n)
		}
		if n := len(a.of("good")); n != 7 {
			t.Errorf("the other pool: got %d decisions in a minute, want 7", n)
		}
		if n := hung.calls(); n != 2 { // Properties and Peek
			t.Errorf("calls of the hung queue: got %d, want 2", n)
		}
		if n := one.get(); n != 3 || len(a.of("hung")) == 0 {
			t.Errorf("the pool of the hung queue: got %d instances after %d decisions, want 3 and some", n, len(a.of("hung")))
		}
		close(release)
		after(time.Minute)
		if s := a.agent.State()[0].Sample; s.Depth.Or(-1) != 0 {
			t.Errorf("after the queue has returned: got %+v, want depth 0", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A queue that is deleted and made again is unknown in between. Its pool keeps its instances.
func TestAQueueIsDeletedAndMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 5}
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
		fill(t, q, 250)
		after(5 * time.Minute)
		before := p.get()
		if err := q.Drop(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(20 * time.Minute)
		if n := p.get(); n != before {
			t.Errorf("without the queue: got %d instances, want %d", n, before)
		}
		errs := a.errors()
		if len(errs) == 0 || !errors.Is(errs[len(errs)-1], queue.ErrQueueMissing) {
			t.Errorf("errors: got %v, want ErrQueueMissing", errs)
		}
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		fill(t, q, 2000)
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("with 2,000 messages in the new queue: got %d instances, want 10", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A message that was given back and comes again after an hour has not waited for an hour.
func TestARetryIsNoLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		fill(t, q, 1)
		if _, err := q.Dequeue(t.Context(), 1, time.Hour); err != nil {
			t.Fatal(err)
		}
		after(time.Hour + time.Second)
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}})
		after(time.Second)
		s := a.agent.State()[0].Sample
		if age, known := s.HeadAge.Get(); known {
			t.Errorf("only a retry waits: got age %v, want unknown", age)
		}
		fill(t, q, 1)
		after(10 * time.Second)
		if age, known := a.agent.State()[0].Sample.HeadAge.Get(); !known || age != 9*time.Second {
			t.Errorf("a retry and a message wait: got age %v %t, want 9s", age, known)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// What fails because of the stop is no error, and nothing is decided from it.
func TestTheStopIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &breakable{Queue: created(t, must(localqueue.New(nil)), "jobs")}
		q.breaks(func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 3}, Policy: slow})
		after(time.Second)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if errs := a.errors(); len(errs) != 0 || len(a.of("pool")) != 0 {
			t.Errorf("got errors %v and %d decisions, want none", errs, len(a.of("pool")))
		}
	})
}
