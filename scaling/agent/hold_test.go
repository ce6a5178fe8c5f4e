package agent_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// what an operator adds by hand stays for DownAfter; what one removes comes back at once if the load needs it.
func TestWhatAnOperatorAddsStaysForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: p, Policy: slow})
		after(30 * time.Minute) // one would do all the time
		p.set(8)
		after(9 * time.Minute)
		if n := p.get(); n != 8 {
			t.Errorf("9 minutes later: got %d instances, want the 8 of the operator", n)
		}
		if last := a.agent.State()[0].Last; !strings.Contains(last.Decision.Why, "somebody else, or an agent before this one, had set 8") || last.Changes() {
			t.Errorf("decision: %+v", last.Decision)
		}
		after(2 * time.Minute)
		if n := p.get(); n != 1 {
			t.Errorf("11 minutes later: got %d instances, want 1", n)
		}
		fill(t, q, 6000)
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Fatalf("with work: got %d instances, want 10", n)
		}
		p.set(2)
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("a minute after an operator has set 2: got %d instances, want 10", n)
		}
		p.set(15) // more than the policy allows
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("a minute after an operator has set 15: got %d instances, want the 10 that are allowed", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// A platform that takes its time to follow is no operator.
func TestAPlatformThatFollowsSlowlyIsNoOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 2}
		steps := make(chan int)
		defer close(steps)
		a := start(t, agent.Options{}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Actuator: gradual{p, steps}, Policy: slow})
		go func() { // the platform
			for want := range steps {
				for p.get() != want {
					time.Sleep(15 * time.Second)
					if n := p.get(); n < want {
						p.set(n + 1)
					} else {
						p.set(n - 1)
					}
				}
			}
		}()
		fill(t, q, 350)
		after(20 * time.Second)
		take(t, q, 1000)
		after(13 * time.Minute)
		if n := p.get(); n != 1 {
			t.Errorf("13 minutes after the peak: got %d instances, want 1", n)
		}
		for _, d := range a.of("pool") {
			if strings.Contains(d.Decision.Why, "somebody else") {
				t.Fatalf("%v", d.Decision.Why)
			}
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}

// gradual is a platform that follows in steps.
type gradual struct {
	*platform
	steps chan int
}

func (g gradual) Scale(_ context.Context, n int) error {
	waiting.Signal(g.steps, n)
	return nil
}
