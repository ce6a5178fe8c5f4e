package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// a growing queue gets more instances at once, and one that is empty for long loses them.
func TestAGrowingQueueGetsInstancesAndAnEmptyOneLosesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		p := &platform{n: 1}
		a := start(t, agent.Options{}, agent.Pool{
			Name: "emails", Queues: []queue.Queue{q}, Actuator: p,
			Policy: slow,
		})
		after(time.Minute)
		if calls := p.calls(); len(calls) != 0 {
			t.Errorf("without work: got Scale %v, want none", calls)
		}
		fill(t, q, 600)
		after(time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("with 600 messages: got %d instances, want the 10 that are allowed", n)
		}
		take(t, q, 600)
		after(9 * time.Minute)
		if n := p.get(); n != 10 {
			t.Errorf("after 9 minutes without work: got %d instances, want 10", n)
		}
		after(3 * time.Minute)
		if n := p.get(); n != 1 {
			t.Errorf("after 12 minutes without work: got %d instances, want 1", n)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if errs := a.errors(); len(errs) != 0 {
			t.Errorf("errors: %v", errs)
		}
		for _, d := range a.changes("emails") {
			t.Log(d.Decision.Why)
		}
	})
}
