package agent_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
)

// billing is a pool of real listeners: an instance ends two jobs a second, and takes 20 s to start.
func billing(t *testing.T, e *localqueue.Engine, reports listener.BeaconOptions) (*workers, agent.Pool) {
	w := &workers{
		t: t, jobs: created(t, e, "jobs"), beacon: reports, slots: 4, takes: 2 * time.Second, startup: 20 * time.Second, ended: map[string]int{},
	}
	pool := agent.Pool{
		Name: "billing", Queues: []queue.Queue{w.jobs}, Actuator: w,
		Policy: scaling.Policy{Target: time.Minute, Start: 20 * time.Second, DownAfter: 5 * time.Minute, Max: 20},
	}
	if reports.Queue != nil {
		pool.Beacons = []queue.Queue{reports.Queue}
	}
	return w, pool
}

// flood is 35 minutes, with a steady load for 25 and a flood after five. It calls each after each second.
func flood(w *workers, each func(second int)) (sent int) {
	for second := range 2100 {
		n := 2
		if second == 300 {
			n = 900
		}
		if second >= 1500 {
			n = 0
		}
		w.send(n)
		sent += n
		after(time.Second)
		each(second)
	}
	return sent
}

// a flood comes, instances come, the SLA holds, and they go. The agent knows rates, slots and handling time from
// what the instances report.
func TestAFloodIsServedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		w, pool := billing(t, e, listener.BeaconOptions{Queue: created(t, e, "control")})
		a := start(t, agent.Options{}, pool)
		most := 0
		sent := flood(w, func(second int) {
			most = max(most, w.count())
			if second == 100 {
				w.done()
			}
			if second == 250 {
				s := a.agent.State()[0].Sample
				if s.Ready.Or(-1) != w.count() || s.Slots.Or(0) != 4 || !near(s.Handling.Or(0).Seconds(), 2) {
					t.Errorf("sample of the steady load: %+v", s)
				}
				if arrival, service := meanRates(a.agent.Timeline("billing")[12:]); !near(arrival, 2) || !near(service, 2) {
					t.Errorf("rates of the steady load: got %v in and %v out, want 2 each", arrival, service)
				}
				if s.Visible.Or(-1)+s.InWork.Or(-1)+s.Delayed.Or(-1) != s.Depth.Or(-2) {
					t.Errorf("the parts of the depth do not add up: %+v", s)
				}
			}
			if second == 290 {
				if _, _, slowest := w.done(); slowest > 20*time.Second {
					t.Errorf("steady load: the slowest job took %v", slowest)
				}
			}
		})
		jobs, twice, slowest := w.done()
		if jobs != sent || twice != 0 {
			t.Errorf("got %d jobs, %d of them twice, want %d once", jobs, twice, sent)
		}
		if sla := 3 * time.Minute; slowest > sla {
			t.Errorf("the slowest job took %v, want %v at most", slowest, sla)
		}
		if most < 8 || w.count() != 1 {
			t.Errorf("got %d instances at most and %d at the end, want 8 or more, and 1", most, w.count())
		}
		t.Logf("%d at most, the slowest took %v, asked for %v", most, slowest, w.calls())
		for _, d := range a.changes("billing") {
			t.Log(d.Decision.At.Format(time.TimeOnly), d.Decision.Why)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if errs := a.errors(); len(errs) != 0 {
			t.Errorf("errors: %v", errs)
		}
		w.end()
	})
}

// meanRates are the averages of arrival and service.
func meanRates(of []agent.Decided) (arrival, service float64) {
	for _, d := range of {
		arrival += d.Sample.Arrival.Or(0) / float64(len(of))
		service += d.Sample.Service.Or(0) / float64(len(of))
	}
	return arrival, service
}

// near reports whether a figure is within a fifth of what it should be.
func near(got, want float64) bool { return got > want*0.8 && got < want*1.2 }

// an agent that is killed and started again a dozen times, before, while and after a flood is served, loses no job and changes its mind no more often.
func TestAKilledAgentServesAFlood(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many kills")
	}
	asked := func(kills ...int) (asked []int, slowest time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			e := must(localqueue.New(nil))
			w, pool := billing(t, e, listener.BeaconOptions{Queue: created(t, e, "control")})
			folder := t.TempDir()
			a := start(t, agent.Options{Folder: folder}, pool)
			sent := flood(w, func(second int) {
				if !slices.Contains(kills, second) {
					return
				}
				history := files(t, folder)
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				history.restore(t)
				a = start(t, agent.Options{Folder: folder}, pool)
			})
			var jobs, twice int
			jobs, twice, slowest = w.done()
			if jobs != sent || twice != 0 {
				t.Errorf("got %d jobs, %d of them twice, want %d once", jobs, twice, sent)
			}
			asked = w.calls()
			if err := a.stop(); err != nil {
				t.Error(err)
			}
			w.end()
		})
		return asked, slowest
	}
	want, _ := asked()
	got, slowest := asked(7, 31, 305, 313, 322, 334, 355, 390, 600, 905, 1400, 1700)
	if reversals(0, got) > reversals(0, want) {
		t.Errorf("killed twelve times: got Scale %v, want no more reversals than %v", got, want)
	}
	if slowest > 3*time.Minute {
		t.Errorf("killed twelve times: the slowest job took %v, want 3 min at most", slowest)
	}
}
