package agent_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/beacon"
)

// put puts a text into a control queue.
func put(t *testing.T, q queue.Queue, text string) {
	t.Helper()
	if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
		t.Fatal(err)
	}
}

// reports that are wrong, of other pools, or stale change nothing, and those of this pool are seen among them.
func TestWrongForeignAndStaleReportsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := created(t, e, "control")
		w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
		report := beacon.Report{
			Instance: "of another pool", Queue: queue.Name{Account: "test", Queue: "others"}, Run: "1", Sequence: 1, Up: time.Minute,
			Next: time.Hour, Phase: "running", Ended: 1_000_000, Load: scaling.Load{Slots: 1000, Running: 900, Service: scaling.Known(5000.0)},
		}
		foreign, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		report.Instance, report.Queue, report.Next = "killed a moment ago", w.jobs.Name(), 10*time.Second
		report.Load = scaling.Load{Slots: 4, Running: 4, Service: scaling.Known(2.0)}
		stale, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		put(t, control, string(foreign))
		put(t, control, "not a report")
		put(t, control, `{"beacon":1,"instance":"x","queue":"test/jobs","sequence":1,"phase":"running","next":"10s","ended":-5}`)
		put(t, control, strings.Replace(string(foreign), `"beacon":1`, `"beacon":99`, 1))
		put(t, control, string(stale))
		a := start(t, agent.Options{}, pool)
		for range 300 {
			w.send(1)
			after(time.Second)
		}
		s := a.agent.State()[0].Sample
		_, service := meanRates(a.agent.Timeline("billing")[10:])
		if s.Ready.Or(-1) != w.count() || w.count() > 3 || s.Slots.Or(0) != 4 || !near(service, 1) || s.Running.Or(100) > 4 {
			t.Errorf("among other reports: got %+v, want that of %d instances alone", s, w.count())
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// one false report does not hold the pool at its maximum for hours. What no instance can have is ignored, and the rest is
// believed for three of its intervals, of ten minutes at most.
func TestOneFalseReportIsSoonForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for name, c := range map[string]struct {
		change func(*beacon.Report)
		most   int // minutes with the largest number of instances
	}{
		"an absurd rate":     {func(r *beacon.Report) { r.Load.Service = scaling.Known(1e6) }, 0},
		"an absurd number":   {func(r *beacon.Report) { r.Load.Slots, r.Load.Running = 1<<30, 1<<30 }, 0},
		"an absurd time":     {func(r *beacon.Report) { r.Load.Handling = scaling.Known(365 * 24 * time.Hour) }, 0},
		"an absurd interval": {func(r *beacon.Report) { r.Next = time.Hour }, 0},
		"a lie":              {func(*beacon.Report) {}, 37}, // half an hour, the policy's DownAfter, and a little
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := must(localqueue.New(nil))
				control := created(t, e, "control")
				w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
				a := start(t, agent.Options{}, pool)
				after(10 * time.Minute)
				report := beacon.Report{
					Instance: "a stranger", Queue: w.jobs.Name(), Run: "1", Sequence: 1, Up: time.Minute, Next: 10 * time.Minute,
					Phase: "running", Load: scaling.Load{Slots: 4, Service: scaling.Known(1000.0), Handling: scaling.Known(time.Minute)},
				}
				c.change(&report)
				text, err := json.Marshal(report)
				if err != nil {
					t.Fatal(err)
				}
				put(t, control, string(text))
				most := 0
				for range 2 * 60 {
					after(time.Minute)
					if w.count() == pool.Policy.Max {
						most++
					}
				}
				if most > c.most || c.most > 0 && most < c.most/2 {
					t.Errorf("got %d minutes with the most instances in two hours, want about %d", most, c.most)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
				w.end()
			})
		})
	}
}

// while the control queue is missing, what only instances know is unknown, and the pool is scaled by the depth.
func TestAMissingControlQueueLeavesTheDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := e.Queue(queue.Name{Account: "test", Queue: "control"})
		w, pool := billing(t, e, listener.BeaconOptions{})
		pool.Beacons = []queue.Queue{control}
		pool.Policy.Slots, pool.Policy.Handling = 4, 2*time.Second
		a := start(t, agent.Options{}, pool)
		w.send(1200)
		after(2 * time.Minute)
		if w.count() < 5 {
			t.Errorf("got %d instances for 1,200 jobs, want more", w.count())
		}
		after(3 * time.Minute)
		s := a.agent.State()[0].Sample
		if s.Ready.IsKnown() || s.Service.IsKnown() || s.Arrival.IsKnown() || s.Handling.IsKnown() || s.Slots.IsKnown() || s.Running.IsKnown() || s.InWork.IsKnown() && s.Depth.Or(0) > 0 {
			t.Errorf("without the control queue: got %+v, want unknown figures", s)
		}
		errs := a.errors()
		if len(errs) == 0 || !errors.Is(errs[0], queue.ErrQueueMissing) || !strings.Contains(errs[0].Error(), "read the reports of test/control") {
			t.Errorf("errors: %v", errs)
		}
		if jobs, _, _ := w.done(); jobs != 1200 {
			t.Errorf("got %d jobs, want 1,200", jobs)
		}
		// When it is there, but nobody reports, nothing is known either.
		if err := control.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		if s := a.agent.State()[0].Sample; s.Ready.IsKnown() || s.Service.IsKnown() {
			t.Errorf("without reports: got %+v, want unknown figures", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// A control queue that is full of other messages hides instances. That is said once, with what to do, and its end too.
func TestAFullControlQueueIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := created(t, e, "control")
		w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
		var log logText
		a := start(t, agent.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, pool)
		after(time.Minute)
		for range 40 {
			put(t, control, "not a report")
		}
		after(5 * time.Minute)
		errs := a.agent.State()[0].Errors
		const want = "see all reports of test/control: a queue shows 32 messages at most, and this one may have more"
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) || !strings.Contains(errs[0].Error(), "of those that it shows are not reports: clear the queue") {
			t.Errorf("got %v, want %q and what to do", errs, want)
		}
		if err := control.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Minute)
		said, ended := strings.Count(log.String(), want), strings.Count(log.String(), "it works again: see all reports")
		if s := a.agent.State()[0]; len(s.Errors) != 0 || s.Sample.Ready.Or(0) != 1 || said != 1 || ended != 1 {
			t.Errorf("cleared: got %+v, and\n%s\nwant one instance, and one line each", s, log.String())
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// one control queue of two that fails makes what instances report unknown: a sum of some is no sum.
func TestOneFailingControlQueueMakesReportsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		control := created(t, e, "control")
		w, pool := billing(t, e, listener.BeaconOptions{Queue: control})
		second := &breakable{Queue: created(t, e, "second")}
		pool.Beacons = []queue.Queue{control, second}
		pool.Policy.ToZero, pool.Policy.DownAfter = true, time.Minute
		a := start(t, agent.Options{}, pool)
		w.send(10)
		after(time.Minute)
		if s := a.agent.State()[0].Sample; s.Ready.Or(0) != 1 || !s.Service.IsKnown() {
			t.Errorf("with both: got %+v, want one instance", s)
		}
		second.breaks(fails(errBroken))
		after(10 * time.Second)
		unknown := func(when string) {
			t.Helper()
			s := a.agent.State()[0].Sample
			if s.Ready.IsKnown() || s.Service.IsKnown() || s.Arrival.IsKnown() || s.Running.IsKnown() || s.Slots.IsKnown() || s.Handling.IsKnown() {
				t.Errorf("%s: got %+v, want unknown figures", when, s)
			}
		}
		unknown("with one failing")
		after(5 * time.Minute)
		if w.count() != 0 {
			t.Errorf("without work: got %d instances, want none", w.count())
		}
		unknown("with one failing and no instance")
		second.breaks(nil)
		after(10 * time.Second)
		if s := a.agent.State()[0].Sample; s.Ready.Or(-1) != 0 {
			t.Errorf("with both and no instance: got %+v, want no ready one", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// of messages that workers hold or gave back, and of those that their senders delayed, the policy hears apart.
func TestTheDepthIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := must(localqueue.New(nil))
		w, pool := billing(t, e, listener.BeaconOptions{Queue: created(t, e, "control"), Interval: time.Second})
		w.takes = time.Hour
		for range 50 { // not due for a day
			if _, err := w.jobs.Enqueue(t.Context(), `"x"`, &queue.EnqueueOptions{Delay: 24 * time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		pool.Policy.Max = 1
		a := start(t, agent.Options{}, pool)
		w.send(10)
		after(2 * time.Minute)
		s := a.agent.State()[0].Sample
		if s.Depth.Or(0) != 60 || s.Visible.Or(-1) != 6 || s.InWork.Or(-1) != 4 || s.Delayed.Or(-1) != 50 {
			t.Errorf("10 jobs for 4 slots and 50 delayed ones: got %+v", s)
		}
		w.send(90) // more than a peek shows
		after(20 * time.Second)
		s = a.agent.State()[0].Sample
		if s.Depth.Or(0) != 150 || s.Visible.Or(-1) != 146 || s.InWork.Or(-1) != 4 || s.Delayed.Or(-1) != 0 {
			t.Errorf("with 90 more, of which a peek shows 32: got %+v", s)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		w.end()
	})
}

// A-03, N-09: instances that use more CPU than the policy lets them are too few, and the decision says so. A dry run spreads what the
// real ones use over those that there would be: it does not ask for ever more.
func TestInstancesThatUseTooMuchCPUAreTooFew(t *testing.T) {
	for name, dry := range map[string]bool{"real": false, "dry run": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := must(localqueue.New(nil))
				jobs, control := created(t, e, "jobs"), created(t, e, "control")
				for _, name := range []string{"a", "b", "c", "d"} {
					text, err := json.Marshal(beacon.Report{
						Instance: name, Queue: jobs.Name(), Run: name, Sequence: 1, Next: 10 * time.Minute, Phase: "running",
						Load: scaling.Load{Slots: 64, Running: 1}, CPU: scaling.Known(0.92),
						Memory: scaling.Known[int64](60), MemoryLimit: scaling.Known[int64](100),
					})
					if err != nil {
						t.Fatal(err)
					}
					put(t, control, string(text))
				}
				pool := agent.Pool{
					Name: "cpu", Queues: []queue.Queue{jobs}, Beacons: []queue.Queue{control}, Actuator: &platform{n: 4},
					Policy: scaling.Policy{CPU: 0.7, Memory: 0.8, Handling: time.Second},
				}
				if dry {
					pool.Actuator = nil
				}
				a := start(t, agent.Options{}, pool)
				after(9 * time.Second)
				line := a.agent.Timeline("cpu")
				const want = "4 → 6: none waiting, 0/s out; 6 wanted because instances use 92 % of their CPU, target 70 %"
				if len(line) != 1 || line[0].Decision.Why != want || line[0].Sample.Memory != scaling.Known(0.6) {
					t.Errorf("got %+v, want %s", line, want)
				}
				after(5 * time.Minute)
				if last := a.agent.State()[0].Last.Decision; dry && last.Instances != 6 {
					t.Errorf("five minutes later: got %+v, want 6 still", last)
				}
				if err := a.stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
