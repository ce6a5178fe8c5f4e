package agent_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// whatever an actuator does wrong is reported, is tried again at the next measurement, and ends when it works again.
func TestAnActuatorThatFailsIsAskedAgain(t *testing.T) {
	for name, failure := range map[string]func(context.Context, int) error{
		"an error":    func(context.Context, int) error { return errBroken },
		"no response": func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() },
		"a panic":     func(context.Context, int) error { panic("no platform") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := created(t, must(localqueue.New(nil)), "jobs")
				p := &platform{n: 1, scale: failure}
				a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
				fill(t, q, 600)
				after(5 * time.Minute)
				if calls := p.calls(); len(calls) < 7 || slices.Contains(calls, 0) {
					t.Errorf("while it fails: got Scale %v, want a call at least every 41 s", calls)
				}
				state := a.agent.State()[0]
				if state.Last == nil || state.Last.Err == nil || state.Summary.Failed == 0 || state.Summary.Changes() != 0 {
					t.Errorf("state while it fails: got %+v", state)
				}
				if hours := state.Summary.InstanceHours; hours > 1.01*5/60 {
					t.Errorf("instance hours of one instance in five minutes: got %v", hours)
				}
				errs := a.errors()
				var e *agent.Error
				if len(errs) == 0 || !errors.As(errs[0], &e) || e.Pool != "pool" || !strings.Contains(e.Error(), "scale to ") || strings.Contains(e.Error(), "\n") {
					t.Fatalf("errors: %v", errs)
				}
				p.mend()
				after(2 * time.Minute)
				if n := p.get(); n != 10 {
					t.Errorf("when it works again: got %d instances, want 10", n)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// while it is not known how many instances there are, nothing is decided. The measurements go on.
func TestNothingIsDecidedWithoutTheNumberOfInstances(t *testing.T) {
	for name, failure := range map[string]func(context.Context, int) (int, error){
		"an error":    func(context.Context, int) (int, error) { return 0, errBroken },
		"no response": func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
		"a panic":     func(context.Context, int) (int, error) { panic("no platform") },
		"a lie":       func(context.Context, int) (int, error) { return -1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := created(t, must(localqueue.New(nil)), "jobs")
				p := &platform{n: 3, instances: failure}
				folder := t.TempDir()
				a := start(t, agent.Options{Folder: folder}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
				fill(t, q, 600)
				after(5 * time.Minute)
				if calls, decisions := p.calls(), a.of("pool"); len(calls) != 0 || len(decisions) != 0 {
					t.Errorf("got Scale %v and %d decisions, want none", calls, len(decisions))
				}
				if s := a.agent.State()[0].Sample; s.Depth.Or(0) != 600 {
					t.Errorf("sample: got %+v, want depth 600", s)
				}
				errs := a.errors()
				if len(errs) == 0 || !strings.Contains(errs[0].Error(), "read how many instances there are") || !strings.Contains(errs[0].Error(), "nothing is decided") {
					t.Errorf("errors: %v", errs)
				}
				p.mend()
				after(time.Minute)
				if n := p.get(); n != 10 {
					t.Errorf("when it works again: got %d instances, want 10", n)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				if text := string(files(t, folder).texts["pool.history.jsonl"]); !strings.Contains(text, `"instances":3`) || strings.Contains(text, `"instances":0`) {
					t.Errorf("the history has a number of instances that nobody knew: %s", text)
				}
			})
		})
	}
}

// An actuator that ignores its context is called again only after it has returned; the measurements go on. At the stop it has 5 s.
func TestAnActuatorThatHangsIsNotCalledTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		release := make(chan struct{})
		var mu sync.Mutex
		inside, most := 0, 0
		enter := func() {
			mu.Lock()
			inside++
			most = max(most, inside)
			mu.Unlock()
		}
		leave := func() {
			mu.Lock()
			inside--
			mu.Unlock()
		}
		p := &platform{n: 1}
		p.scale = func(context.Context, int) error { enter(); defer leave(); <-release; return nil }
		p.instances = func(_ context.Context, n int) (int, error) { enter(); defer leave(); return n, nil }
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
		fill(t, q, 600)
		after(10 * time.Minute)
		if calls := p.calls(); len(calls) != 1 || most != 1 {
			t.Errorf("got Scale %v and %d calls at once, want one", calls, most)
		}
		if s := a.agent.State()[0].Sample; time.Since(s.At) > time.Minute {
			t.Errorf("the newest sample is %v old, want fresh ones", time.Since(s.At))
		}
		begin := time.Now()
		err := a.stop()
		if err == nil || !strings.Contains(err.Error(), "left behind") {
			t.Errorf("Run: got %v, want an error that says what is left behind", err)
		}
		if took := time.Since(begin); took < 5*time.Second || took > 15*time.Second {
			t.Errorf("the stop took %v, want 5 s and little more", took)
		}
		close(release)
	})
}

// The stop waits for a call of an actuator that works; a halt does not.
func TestTheStopWaitsForAChangeAndAHaltDoesNot(t *testing.T) {
	for _, halt := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := created(t, must(localqueue.New(nil)), "jobs")
			fill(t, q, 600)
			p := &platform{n: 1}
			var ended error
			p.scale = func(ctx context.Context, n int) error {
				select {
				case <-time.After(4 * time.Second):
					p.set(n)
				case <-ctx.Done():
				}
				ended = ctx.Err()
				return ended
			}
			a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
			after(time.Second) // it scales
			if halt {
				a.agent.Halt()
			}
			begin := time.Now()
			if err := a.stop(); err != nil {
				t.Error(err)
			}
			took := time.Since(begin)
			if halt && (took > time.Second || ended == nil) || !halt && (took != 3*time.Second || ended != nil || p.get() == 1) {
				t.Errorf("halt %t: the stop took %v, the context of the call %v, instances %d", halt, took, ended, p.get())
			}
		})
	}
}

// A platform that does not do what it is asked for, such as one with a quota, is asked again with the same number, not a growing one.
func TestAPlatformThatStaysBelowIsAskedForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		fill(t, q, 6000)
		p := &platform{n: 2, scale: func(context.Context, int) error { return nil }} // it lies
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
		after(10 * time.Minute)
		calls := p.calls()
		slices.Sort(calls)
		if calls = slices.Compact(calls); !slices.Equal(calls, []int{6, 10}) {
			t.Errorf("got Scale %v, want a step from 2, and then what is wanted", calls)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// Hooks that panic hurt nothing.
func TestHooksMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		q := &breakable{Queue: created(t, e, "jobs")}
		q.breaks(fails(errBroken))
		p := &platform{n: 1}
		var log strings.Builder
		a, err := agent.New([]agent.Pool{{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow}}, &agent.Options{
			OnDecision: func(agent.Decided) { panic("decided") },
			OnError:    func(error) { panic("told") },
			Logger:     slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		after(time.Minute)
		q.breaks(nil)
		fill(t, q, 600)
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("got %d instances, want 10", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, hook := range []string{"hook=OnDecision", "hook=OnError", "panic=decided"} {
			if !strings.Contains(log.String(), hook) {
				t.Errorf("the log lacks %s: %s", hook, log.String())
			}
		}
	})
}

// The log has one line for a failure that lasts, one every ten minutes, and one for its end.
func TestTheLogIsNotFlooded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &breakable{Queue: created(t, must(localqueue.New(nil)), "jobs")}
		q.breaks(fails(errBroken))
		var log strings.Builder
		a := start(t, agent.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: &platform{n: 1}, Policy: slow})
		after(35 * time.Minute)
		q.breaks(nil)
		after(time.Minute)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 8 {
			t.Errorf("error lines in 35 minutes: got %d, want 4 for each of 2 figures:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "it works again"); n != 2 {
			t.Errorf("lines at the end: got %d, want 2:\n%s", n, log.String())
		}
	})
}
