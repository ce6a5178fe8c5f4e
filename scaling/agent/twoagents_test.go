package agent_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling/agent"
)

// two agents for one pool, which nobody wants, see the same and decide the same: they do not fight.
func TestTwoAgentsForOnePoolDoNotFight(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	asked := func(agents int) (asked []int) {
		synctest.Test(t, func(t *testing.T) {
			e := must(localqueue.New(nil))
			w, pool := billing(t, e, listener.BeaconOptions{Queue: created(t, e, "control")})
			var all []*running
			for range agents {
				all = append(all, start(t, agent.Options{}, pool))
				after(3 * time.Second)
			}
			sent := flood(w, func(int) {})
			if jobs, twice, slowest := w.done(); jobs != sent || twice != 0 || slowest > 3*time.Minute {
				t.Errorf("%d agents: got %d jobs, %d of them twice, the slowest in %v, want %d once within 3 min", agents, jobs, twice, slowest, sent)
			}
			asked = w.calls()
			for _, a := range all {
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			}
			w.end()
		})
		return asked
	}
	one, two := asked(1), asked(2)
	if reversals(0, two) > reversals(0, one) || len(two) > 2*len(one) {
		t.Errorf("two agents: got Scale %v, want no more reversals than %v", two, one)
	}
}

// where another agent starts instances for the same pool somewhere else, more of them report than there are. That is said once in
// the log, is in the state while it lasts, and its end is said. Instances that come and go, and reports of killed ones, are no others.
func TestAnotherAgentForThePoolIsNoticed(t *testing.T) {
	if testing.Short() {
		t.Skip("plays an hour")
	}
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		w, pool := billing(t, e, listener.BeaconOptions{Queue: created(t, e, "control")})
		other, otherPool := &workers{
			t: t, jobs: w.jobs, beacon: w.beacon, slots: w.slots, takes: w.takes, ended: map[string]int{}, started: 1000, // of other names
		}, pool
		otherPool.Actuator = other
		var log logText
		a := start(t, agent.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, pool)
		flood(w, func(int) {})
		if strings.Contains(log.String(), "ERROR") {
			t.Fatalf("with one agent: got %s, want no error", log.String())
		}
		b := start(t, agent.Options{}, otherPool)
		after(9 * time.Minute)
		if errs := a.errors(); len(errs) != 0 {
			t.Errorf("nine minutes later: got %v, want no error yet", errs)
		}
		after(3 * time.Minute)
		const want = "count the instances: 2 report, and this agent has 1"
		if errs := a.agent.State()[0].Errors; len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), "another agent") {
			t.Errorf("twelve minutes later: got %v, want %q", errs, want)
		}
		if n := strings.Count(log.String(), want); n != 1 {
			t.Errorf("got %d lines, want 1:\n%s", n, log.String())
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
		other.end()
		after(time.Minute)
		if errs := a.agent.State()[0].Errors; len(errs) != 0 || !strings.Contains(log.String(), "it works again: count the instances") {
			t.Errorf("after the end of the other: got %v and\n%s\nwant the end said", errs, log.String())
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// the service is busy, slow, or does not answer; requests and answers of the agent are lost. The flood is served in time
// all the same, because a figure that is missing once is there the next time.
func TestAFloodIsServedInABadNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := created(t, e, "control")
		w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
		bad := func(q queue.Queue, seed uint64) queue.Queue {
			return must(faultqueue.New(q, &faultqueue.Options{
				Seed: seed, Every: faultqueue.Rates{Throttled: 0.1, Unavailable: 0.05, LostRequest: 0.05, LostResponse: 0.05, Slow: 0.05},
			}))
		}
		pool.Queues, pool.Beacons = []queue.Queue{bad(w.jobs, 1)}, []queue.Queue{bad(control, 2)}
		a := start(t, agent.Options{}, pool)
		sent := flood(w, func(int) {})
		if jobs, twice, slowest := w.done(); jobs != sent || twice != 0 || slowest > 3*time.Minute {
			t.Errorf("got %d jobs, %d of them twice, the slowest in %v, want %d once within 3 min", jobs, twice, slowest, sent)
		}
		if n := len(a.errors()); n < 100 {
			t.Errorf("got %d errors, want hundreds", n)
		}
		if got := reversals(0, w.calls()); got > 5 {
			t.Errorf("got Scale %v, want fewer reversals", w.calls())
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}
