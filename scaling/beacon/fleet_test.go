package beacon

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// at returns a report of a run at a time, with so many messages ended.
func at(name, run string, up time.Duration, ended int64) Report {
	r := sample(name)
	r.Run, r.Up, r.Put, r.Ended = run, up, 0, ended
	r.Sequence = int64(up/time.Second) + 1
	r.Load.Slots = 10
	return r
}

// measure returns what a fleet says of these reports.
func measure(f *Fleet, reports ...Report) (s scaling.Sample) {
	f.Measure(&s, View{Reports: reports})
	return s
}

// A-03, V-09: what instances report adds up to the sample of a pool.
func TestAFleetAddsUpWhatInstancesReport(t *testing.T) {
	f := must(NewFleet(jobs, queue.Name{Account: "acme", Queue: "more"}))
	a, b := at("a", "1", time.Minute, 100), at("b", "2", time.Minute, 100)
	a.Load.Running, a.Load.Settling, a.Delayed, a.Load.Handling, a.Load.Service = 4, 2, 3, scaling.Known(time.Second), scaling.Known(1.0)
	b.Load.Running, b.Delayed, b.Load.Handling, b.Load.Slots = 8, 1, scaling.Known(4*time.Second), 30
	b.Load.Service = scaling.Known(0.5)
	more := a // the other queue of a
	more.Queue.Queue, more.Load.Slots = "more", 6
	more.Load.Handling, more.Load.Service, more.Delayed = scaling.Optional[time.Duration]{}, scaling.Known(0.0), 0
	foreign := b
	foreign.Queue.Queue = "foreign"
	got := measure(f, a, b, more, foreign)
	want := scaling.Sample{
		Ready: scaling.Known(2), Running: scaling.Known(16), InWork: scaling.Known[int64](20), Delayed: scaling.Known[int64](4),
		Slots: scaling.Known(23.0), Service: scaling.Known(1.5), Handling: scaling.Known(2 * time.Second),
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}

	for _, c := range []struct {
		name   string
		change func(r *Report)
		ready  int
		slots  scaling.Optional[float64]
	}{
		{"as it was", func(*Report) {}, 2, scaling.Known(23.0)},
		{"paused", func(r *Report) { r.Paused = true }, 1, scaling.Known(16.0)},
		{"draining", func(r *Report) { r.Phase = "draining" }, 1, scaling.Known(16.0)},
		{"shared", func(r *Report) { r.Shared = true }, 2, scaling.Known(23.0)},
	} {
		changed := b
		c.change(&changed)
		got := measure(must(NewFleet(f.queues...)), a, changed, more)
		if got.Ready != scaling.Known(c.ready) || got.Slots != c.slots || got.Running != scaling.Known(16) {
			t.Errorf("%s: got %+v, want %d ready with %v", c.name, got, c.ready, c.slots)
		}
	}
	a.Shared, more.Shared = true, true
	if got := measure(must(NewFleet(f.queues...)), a, more); got.Slots != scaling.Known(10.0) {
		t.Errorf("shared slots: got %+v, want the 10 counted once", got.Slots)
	}
}

// Without reports nothing runs, and what nobody says is unknown. A full view has no sums.
func TestWhatNobodySaysIsUnknown(t *testing.T) {
	got := measure(must(NewFleet(jobs)))
	want := scaling.Sample{
		Ready: scaling.Known(0), Running: scaling.Known(0), InWork: scaling.Known[int64](0), Delayed: scaling.Known[int64](0), Service: scaling.Known(0.0),
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	got = scaling.Sample{Ready: scaling.Known(9), Service: scaling.Known(1.0), Depth: scaling.Known[int64](5)}
	one := at("a", "1", time.Minute, 1)
	one.Load.Handling = scaling.Known(time.Second)
	must(NewFleet(jobs)).Measure(&got, View{Reports: []Report{one}}, View{Full: true})
	want = scaling.Sample{Slots: scaling.Known(10.0), Handling: scaling.Known(time.Second), Depth: scaling.Known[int64](5)}
	if got != want {
		t.Errorf("full: got %+v, want %+v", got, want)
	}
}

// The service rate is that between the two newest reports of each run, however often the viewer looks.
func TestTheServiceRateDoesNotDependOnTheViewer(t *testing.T) {
	f := must(NewFleet(jobs))
	service := func(reports ...Report) float64 { return measure(f, reports...).Service.Or(-1) }
	steps := []struct {
		why     string
		reports []Report
		want    float64
	}{
		{"new, it does not say its rate", []Report{at("a", "1", 10*time.Second, 20)}, 2},
		{"the next report", []Report{at("a", "1", 20*time.Second, 70)}, 5},
		{"the same again", []Report{at("a", "1", 20*time.Second, 70)}, 5},
		{"two reports later", []Report{at("a", "1", 40*time.Second, 90)}, 1},
		{"another one came", []Report{at("a", "1", 50*time.Second, 100), at("b", "2", 5*time.Second, 5)}, 2},
		{"a was restarted", []Report{at("a", "3", 10*time.Second, 30), at("b", "2", 15*time.Second, 15)}, 4},
		{"b is not seen", []Report{at("a", "3", 20*time.Second, 60)}, 3},
		{"b is back: what it did meanwhile is not of now", []Report{at("a", "3", 20*time.Second, 60), at("b", "2", 60*time.Second, 60)}, 3 + 1},
		{"nothing comes", []Report{at("a", "3", 80*time.Second, 60), at("b", "2", 90*time.Second, 60)}, 0},
	}
	for _, s := range steps {
		if got := service(s.reports...); math.Abs(got-s.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", s.why, got, s.want)
		}
	}
	long := at("c", "4", 1000*time.Hour, 1)
	long.Load.Service = scaling.Known(7.0)
	if got := service(long); got != 7 {
		t.Errorf("first seen after long: got %v, want what it says of now, 7", got)
	}
}

// A last report counts the messages since the last measurement: the rate before has covered the others.
func TestALastReportCountsWhatWasNotCounted(t *testing.T) {
	last := func(run string, up time.Duration, ended int64) Report {
		r := at("a", run, up, ended)
		r.Phase, r.Next = stopped, 0
		r.Load.Service = scaling.Known(5.0)
		return r
	}
	for _, c := range []struct {
		why        string
		seen, last Report
		ago        time.Duration // from the last report to the measurement
		passed     time.Duration // since the measurement before
		want       float64
	}{
		{"it stopped at the time of the measurement before", at("a", "1", 80*time.Second, 60), last("1", 84*time.Second, 80), 10 * time.Second, 10 * time.Second, 0},
		{"it stopped 2 s after it", at("a", "1", 80*time.Second, 60), last("1", 84*time.Second, 80), 8 * time.Second, 10 * time.Second, 1},
		{"it stopped just now", at("a", "1", 80*time.Second, 60), last("1", 90*time.Second, 80), 0, 10 * time.Second, 2},
		{"the report before is of the same time", at("a", "1", 80*time.Second, 60), last("1", 81*time.Second, 80), 0, 10 * time.Second, 2},
		{"soon after the measurement before", at("a", "1", 80*time.Second, 60), last("1", 81*time.Second, 80), 0, time.Second, 2},
		{"nothing was done", at("a", "1", 80*time.Second, 60), last("1", 84*time.Second, 60), 0, 10 * time.Second, 0},
		{"it ran between two measurements", at("a", "1", 0, 0), last("2", 5*time.Second, 30), time.Second, 10 * time.Second, 3},
		{"it is earlier than the measurement before", at("a", "1", 0, 0), last("2", time.Hour, 3000), time.Minute, 10 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := must(NewFleet(jobs))
			measure(f, c.seen)
			time.Sleep(c.passed)
			var s scaling.Sample
			view := View{Reports: []Report{c.last}, ended: map[identity]time.Duration{{"a", jobs, c.last.Run}: c.ago}}
			f.Measure(&s, view)
			if got := s.Service.Or(-1); math.Abs(got-c.want) > 1e-9 {
				t.Errorf("%s: got %v, want %v", c.why, got, c.want)
			}
			time.Sleep(c.passed)
			f.Measure(&s, view)
			if got := s.Service.Or(-1); got != 0 {
				t.Errorf("%s: the last report again: got %v, want none: it was counted", c.why, got)
			}
		})
	}
	if got := measure(must(NewFleet(jobs)), last("1", time.Hour, 3000)).Service.Or(-1); got != 0 {
		t.Errorf("in the first measurement: got %v, want 0", got)
	}
}

// Whatever instances and viewers do, no rate is negative, and over time the rates add up to no more than was done.
func TestNoMessageIsCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type worker struct {
			run   int
			up    time.Duration
			ended int64
			shown Report
		}
		const step = 10 * time.Second
		workers := make([]worker, rapid.IntRange(1, 4).Draw(t, "workers"))
		f, runs, done, counted := must(NewFleet(jobs)), 0, int64(0), 0.0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var reports []Report
			for i := range workers {
				w := &workers[i]
				did := rapid.Int64Range(0, 100).Draw(t, "did")
				switch rapid.SampledFrom([]string{"works", "works", "works", "restarts", "hidden"}).Draw(t, "event") {
				case "restarts":
					runs++
					*w = worker{run: runs}
				case "hidden":
					w.up, w.ended, done = w.up+step, w.ended+did, done+did
					continue
				}
				w.up, w.ended, done = w.up+step, w.ended+did, done+did
				w.shown = at(fmt.Sprint(i), fmt.Sprint(w.run), w.up, w.ended)
				reports = append(reports, w.shown)
			}
			rate := measure(f, reports...).Service.Or(-1)
			if rate < 0 {
				t.Fatalf("got a rate of %v", rate)
			}
			counted += rate * step.Seconds()
		}
		if counted > float64(done)+1e-6 {
			t.Fatalf("counted %v messages, and %d were done", counted, done)
		}
	})
}

// A-03, N-09: CPU and memory are means over the ready instances that report them, and what nobody reports is unknown, never 0.
func TestAFleetHasTheMeanOfCPUAndMemory(t *testing.T) {
	use := func(r Report, cpu float64, used, limit int64) Report {
		r.CPU, r.Memory, r.MemoryLimit = scaling.Known(cpu), scaling.Known(used), scaling.Known(limit)
		return r
	}
	a, b, old := at("a", "1", time.Minute, 1), at("b", "2", time.Minute, 1), at("old", "3", time.Minute, 1)
	unlimited, draining := use(at("c", "4", time.Minute, 1), 0.9, 1<<30, 1), use(at("d", "5", time.Minute, 1), 1, 1000, 1000)
	unlimited.MemoryLimit, draining.Phase = scaling.Optional[int64]{}, "draining"
	more := use(a, 0.5, 100, 1000) // another listener of the same process
	more.Queue.Queue = "more"
	for _, c := range []struct {
		name        string
		reports     []Report
		cpu, memory scaling.Optional[float64]
	}{
		{"of the last release", []Report{old}, scaling.Optional[float64]{}, scaling.Optional[float64]{}},
		{"both, beside one of the last release", []Report{use(a, 0.75, 250, 1000), use(b, 0.25, 3000, 4000), old}, scaling.Known(0.5), scaling.Known(0.5)},
		{"idle", []Report{use(a, 0, 0, 1000)}, scaling.Known(0.0), scaling.Known(0.0)},
		{"two listeners of a process", []Report{use(a, 0.75, 250, 1000), more}, scaling.Known(0.75), scaling.Known(0.25)},
		{"without a limit", []Report{unlimited}, scaling.Known(0.9), scaling.Optional[float64]{}},
		{"above its limit", []Report{use(a, 1, 1500, 1000)}, scaling.Known(1.0), scaling.Known(1.0)},
		{"those that end do not count", []Report{use(a, 0.5, 500, 1000), draining}, scaling.Known(0.5), scaling.Known(0.5)},
	} {
		got := measure(must(NewFleet(jobs, queue.Name{Account: "acme", Queue: "more"})), c.reports...)
		if got.CPU != c.cpu || got.Memory != c.memory {
			t.Errorf("%s: got CPU %+v and memory %+v, want %+v and %+v", c.name, got.CPU, got.Memory, c.cpu, c.memory)
		}
	}
}

// two reports that do not fit together make no rate that one report must not have.
func TestARateBetweenReportsIsBounded(t *testing.T) {
	for name, second := range map[string]Report{
		"many in a second":      at("a", "1", 61*time.Second, maxCount),
		"some in a nanosecond":  func() Report { r := at("a", "1", time.Minute+1, 101); r.Sequence = 62; return r }(),
		"an honest one follows": at("a", "1", 61*time.Second, 150),
	} {
		f := must(NewFleet(jobs))
		measure(f, at("a", "1", time.Minute, 100))
		if s := measure(f, second); s.Service.Or(0) <= 0 || s.Service.Or(0) > maxRate {
			t.Errorf("%s: got %v/s, want at most %v", name, s.Service.Or(0), maxRate)
		}
	}
}
