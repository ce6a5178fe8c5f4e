package agent_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// two agents for one pool, which nobody wants, see the same and decide the same: they do not fight.
func TestTwoAgentsForOnePoolDoNotFight(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	asked := func(agents int) (asked []int) {
		synctest.Test(t, func(t *testing.T) {
			e := localqueue.New(nil)
			w, pool := billing(t, e, beacon.Options{Queue: created(t, e, "control")})
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

// the service is busy, slow, or does not answer; requests and answers of the agent are lost. The flood is served in time
// all the same, because a figure that is missing once is there the next time.
func TestAFloodIsServedInABadNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := localqueue.New(nil)
		control := created(t, e, "control")
		w, pool := billing(t, e, beacon.Options{Queue: control})
		bad := func(q queue.Queue, seed uint64) queue.Queue {
			return faultqueue.New(q, &faultqueue.Options{
				Seed: seed, Every: faultqueue.Rates{Throttled: 0.1, Unavailable: 0.05, LostRequest: 0.05, LostResponse: 0.05, Slow: 0.05},
			})
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
