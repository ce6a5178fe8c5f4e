package agent_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/wakeup"
)

// A dry run decides as if its decisions had been carried out, and counts what they would have cost and what measuring did. It
// takes no events from anybody.
func TestADryRunSaysWhatItWouldDoAndCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := created(t, must(localqueue.New(nil)), "jobs")
		bus := &source{}
		policy := slow
		policy.ToZero, policy.DownAfter = true, 5*time.Minute
		a := start(t, agent.Options{
			Wakeups: bus,
			Prices:  agent.Prices{InstanceHour: 0.12, Requests: metered.Price{Class1: 0.004}},
		}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Policy: policy})
		after(10*time.Minute + time.Second)
		if bus.count() != 0 {
			t.Error("a dry run listens to events")
		}
		fill(t, q, 600)
		after(10 * time.Minute) // 10 instances would have been asked for within 30 s
		take(t, q, 600)
		after(40 * time.Minute)
		state := a.agent.State()[0]
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		hours, least, most := 0.0, 0, 0
		line := a.agent.Timeline("pool")
		for i, d := range line {
			if !d.DryRun || d.Err != nil {
				t.Fatalf("decision: %+v", d)
			}
			if i > 0 {
				if d.Decision.From != line[i-1].Decision.Instances {
					t.Fatalf("decision %d begins with %d instances, and the one before ended with %d", i, d.Decision.From, line[i-1].Decision.Instances)
				}
				hours += d.Decision.At.Sub(line[i-1].Decision.At).Hours() * float64(line[i-1].Decision.Instances)
			}
			least, most = min(least, d.Decision.Instances), max(most, d.Decision.Instances)
		}
		s := state.Summary
		if most != 10 || least != 0 || s.Most != most || s.Least != least {
			t.Errorf("got %d…%d instances and %d…%d in the summary, want 0…10", least, most, s.Least, s.Most)
		}
		if math.Abs(s.InstanceHours-hours) > 1e-9 || hours < 2 || math.Abs(s.InstanceCost.Or(0)-0.12*hours) > 1e-9 {
			t.Errorf("summary: got %v hours for %v, want those of the timeline, %v", s.InstanceHours, s.InstanceCost, hours)
		}
		if changes := len(a.changes("pool")); s.Changes() != changes || s.Downs == 0 || s.Ups == 0 || s.Decisions != len(line) || s.Failed != 0 {
			t.Errorf("summary: got %+v, want %d changes of %d decisions", s, changes, len(line))
		}
		if s.To.Sub(s.From) != time.Hour {
			t.Errorf("summary: from %v to %v, want an hour", s.From, s.To)
		}
		// 361 measurements of the depth, and 60 looks at the messages while there were some.
		if n := s.Requests.Total().Requests; n != 361+60 || s.Requests.Operation(metered.Peek).Requests != 60 || math.Abs(s.RequestCost.Or(0)-421*0.004/10_000) > 1e-12 {
			t.Errorf("requests: got %v for %v, want 361 and 60", s.Requests, s.RequestCost)
		}
		// The first message was a second old at the first of these measurements, and the target is a minute.
		if s.LateMinutes < 8.9 || s.LateMinutes > 9.1 || s.UnseenMinutes != 0 {
			t.Errorf("late: got %v min and %v unseen, want 9 min", s.LateMinutes, s.UnseenMinutes)
		}
		text, err := json.Marshal(state)
		if err != nil || !strings.Contains(string(text), `"instance_hours":`) || !strings.Contains(string(text), `"why":"`) {
			t.Errorf("JSON: %s, %v", text, err)
		}
	})
}

// A dry run begins with the instances that report.
func TestADryRunBeginsWithTheInstancesThatReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := created(t, e, "control")
		w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
		if err := w.Scale(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		pool.Actuator = nil
		a := start(t, agent.Options{}, pool)
		after(time.Second)
		if d := a.of("billing"); len(d) != 1 || d[0].Decision.From != 3 || d[0].Sample.Service.Or(-1) != 0 || d[0].Sample.Ready.IsKnown() {
			t.Errorf("decision: %+v", d)
		}
		w.send(600)
		after(2 * time.Minute)
		if changes := a.changes("billing"); len(changes) == 0 || !changes[0].DryRun || w.count() != 3 {
			t.Errorf("with 600 jobs: got %v, and %d instances", changes, w.count())
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// While a figure is unknown the summary says for how long, and what cannot be priced is unknown.
func TestTheSummaryKnowsWhatItDoesNotKnow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &breakable{Queue: created(t, must(localqueue.New(nil)), "jobs")}
		a := start(t, agent.Options{Wakeups: &wakeup.Bus{}}, agent.Pool{Name: "pool", Queues: []queue.Queue{q}, Policy: slow})
		after(10 * time.Minute)
		q.breaks(fails(errBroken))
		after(10 * time.Minute)
		s := a.agent.State()[0].Summary
		if s.UnseenMinutes < 9.8 || s.UnseenMinutes > 10.1 || s.LateMinutes != 0 || s.InstanceCost.IsKnown() || s.RequestCost.IsKnown() {
			t.Errorf("summary: %+v", s)
		}
		after(3 * time.Hour)
		line := a.agent.Timeline("pool")
		if a.agent.Timeline("another") != nil || len(line) != 1080 || time.Since(line[1079].Decision.At) > 10*time.Second {
			t.Errorf("timelines: got %v and %d decisions, want none and the newest 1,080", a.agent.Timeline("another"), len(line))
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
	})
}
