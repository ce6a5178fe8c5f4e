package beacon

import (
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// Fleet adds up what the instances of one pool report: those that take jobs from the same queues. It remembers the counts of
// each run between two measurements. Make one with [NewFleet]. It is not safe for concurrent use.
type Fleet struct {
	queues []queue.Name
	runs   map[identity]progress
}

// progress is how far a run was at a measurement.
type progress struct {
	sequence int64
	up       time.Duration
	ended    int64
	rate     float64   // messages a second, between its two newest reports
	seen     time.Time // when it last reported
}

// NewFleet returns a fleet of instances that take jobs from these queues. Reports of other queues are ignored.
func NewFleet(queues ...queue.Name) *Fleet {
	return &Fleet{queues: slices.Clone(queues), runs: make(map[identity]progress)}
}

// Measure sets what the reports in the views say of a pool: Ready, Service, Handling, Slots, Running, InWork and Delayed. Each
// view is of one control queue, all of them of about the same time. It leaves the other fields alone. Where a control queue
// could not be read, do not call it: then these figures are unknown.
//
//   - Ready counts the instances of which a listener is running and not paused.
//   - Service is the sum of the rates of all runs, each between its two newest reports, by the clock of the instance: neither
//     a restart, which begins a new run, nor a viewer that looks more or less often than instances report, makes it
//     negative or counts a message twice. A last report counts over 10 s at least, because it may follow the one before
//     at once. Of a run that is seen for the first time it is its Service. What a run
//     took off the queue after its last report that was seen is missing.
//   - Handling is the mean of the handling times of the runs, weighted by their rates, or of all alike while no run has any.
//   - Slots is the mean over the ready instances. What listeners of one instance share counts once.
//   - InWork are the messages whose handlers run or whose settlements are in progress.
//
// When a view is full there may be more instances than it shows: the sums are unknown then, and Slots and Handling are means over
// those that are shown. Without any report Ready, Service, Running, InWork and Delayed are zero.
func (f *Fleet) Measure(s *scaling.Sample, views ...View) {
	t := f.total(views)
	s.Slots, s.Handling = t.meanSlots(), t.meanHandling()
	s.Ready, s.Service, s.Running, s.InWork, s.Delayed = scaling.Optional[int]{}, scaling.Optional[float64]{}, scaling.Optional[int]{}, scaling.Optional[int64]{}, scaling.Optional[int64]{}
	if t.full {
		return
	}
	s.Ready, s.Running = scaling.Known(len(t.slots)), scaling.Known(t.running)
	s.Service = scaling.Known(t.rate)
	s.InWork, s.Delayed = scaling.Known(t.inWork), scaling.Known(t.delayed)
}

// total is what reports add up to.
type total struct {
	full             bool
	slots            map[string]*slots // of the ready instances
	running          int
	rate             float64
	inWork, delayed  int64
	weighted, weight float64 // handling times in seconds by rates
	plain, handlers  float64 // the same, all alike
}

// slots are those of one instance.
type slots struct{ own, shared int }

// total adds up the reports, and remembers them for the next measurement.
func (f *Fleet) total(views []View) total {
	t := total{slots: make(map[string]*slots)}
	counted := make(map[identity]bool)
	now := time.Now()
	for _, v := range views {
		t.full = t.full || v.Full
		for _, r := range v.Reports {
			key := identity{r.Instance, r.Queue, r.Run}
			if counted[key] || !slices.Contains(f.queues, r.Queue) {
				continue
			}
			p := f.advance(key, r)
			p.seen = now
			counted[key], f.runs[key] = true, p
			t.add(r, p)
		}
	}
	// A run may be missing from a view and come back: it is not new then.
	maps.DeleteFunc(f.runs, func(_ identity, p progress) bool { return now.Sub(p.seen) > forgetAfter })
	return t
}

// advance returns how far a run is by its newest report.
func (f *Fleet) advance(key identity, r Report) progress {
	before, found := f.runs[key]
	if found && before.sequence == r.Sequence {
		if r.Phase == stopped { // it was counted
			before.rate = 0
		}
		return before
	}
	now := progress{sequence: r.Sequence, up: r.Up, ended: r.Ended}
	if service, known := r.Load.Service.Get(); known && !found {
		now.rate = service // it may have run for long
	} else if passed := r.Up - before.up; passed > 0 && r.Ended >= before.ended {
		if r.Phase == stopped { // the last report may follow at once: a few messages in a moment are no rate
			passed = max(passed, defaultInterval)
		}
		now.rate = float64(r.Ended-before.ended) / passed.Seconds()
	} else { // a program that does not say how long it has run
		now.rate = service
	}
	return now
}

func (t *total) add(r Report, p progress) {
	t.delayed += r.Delayed
	t.running += r.Load.Running
	t.inWork += int64(r.Load.Running) + int64(r.Load.Settling)
	t.rate += p.rate
	if took, known := r.Load.Handling.Get(); known {
		t.weighted += took.Seconds() * p.rate
		t.weight += p.rate
		t.plain += took.Seconds()
		t.handlers++
	}
	if r.Phase != running || r.Paused {
		return
	}
	one := t.slots[r.Instance]
	if one == nil {
		one = new(slots)
		t.slots[r.Instance] = one
	}
	if r.Shared {
		one.shared = max(one.shared, r.Load.Slots)
	} else {
		one.own += r.Load.Slots
	}
}

// meanSlots returns how many slots a ready instance has on average.
func (t *total) meanSlots() (unknown scaling.Optional[float64]) {
	if len(t.slots) == 0 {
		return unknown
	}
	sum := 0
	for _, one := range t.slots {
		sum += one.own + one.shared
	}
	return scaling.Known(float64(sum) / float64(len(t.slots)))
}

// meanHandling returns how long a handler takes on average.
func (t *total) meanHandling() (unknown scaling.Optional[time.Duration]) {
	sum, weight := t.weighted, t.weight
	if weight == 0 {
		sum, weight = t.plain, t.handlers
	}
	if weight == 0 {
		return unknown
	}
	return scaling.Known(time.Duration(sum / weight * float64(time.Second)))
}
