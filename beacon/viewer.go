package beacon

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// patience is after how many times Next without another report a report is stale, and half a Next more: two may fail in a row,
// and a third be late.
const patience = 3

// forgetAfter is how long a viewer remembers a run whose messages it does not see any more.
const forgetAfter = time.Hour

// maxRemembered bounds how many runs a viewer remembers.
const maxRemembered = 4096

// Viewer reads the reports in a control queue, and remembers which of them are still kept up to date. Make one with
// [NewViewer]. It is safe for concurrent use.
type Viewer struct {
	control queue.Queue

	mu   sync.Mutex
	runs map[identity]sighting // guarded by mu
}

// View are the reports that a [Viewer] has read.
type View struct {
	// At is when the service had answered, by the viewer's clock.
	At time.Time

	// Reports are the newest reports of the listeners that still report, in order of Instance and Queue. A last
	// report, whose Phase is "stopped", is among them for as long as its message lives.
	Reports []Report

	// Full reports that the control queue showed as many messages as the service shows: there may be more instances.
	Full bool

	// Stale is how many reports were left out because no newer one followed in time, Ignored how many messages because they
	// are no reports, or of another version.
	Stale, Ignored int
}

// identity is what distinguishes runs of listeners.
type identity struct {
	instance string
	queue    queue.Name
	run      string
}

// sighting is when the newest report of a run was first seen.
type sighting struct {
	sequence int64
	since    time.Time // when that report was first seen
	shown    time.Time // when a message of the run was last seen
	stale    bool      // it was stale when it was first seen
}

// sight is one report with the service's time at which it was made.
type sight struct {
	Report
	made time.Time
}

// NewViewer returns a viewer of a control queue. It sends nothing.
func NewViewer(control queue.Queue) *Viewer {
	return &Viewer{control: control, runs: make(map[identity]sighting)}
}

// View reads the reports, in one request. A report is stale when three and a half times its Next have passed, by the viewer's monotonic
// clock, since the viewer first saw it. At the first look at a run only the service's time is known: the report is
// stale if another one in the view was made so much later.
func (v *Viewer) View(ctx context.Context) (View, error) {
	messages, err := v.control.Peek(queue.WithCause(ctx, queue.CauseBeacon), queue.MaxBatch)
	if err != nil {
		return View{}, fmt.Errorf("beacon: read the reports in %v: %w", v.control.Name(), err)
	}
	view := View{At: time.Now(), Full: len(messages) >= queue.MaxBatch}
	sights, ignored := newest(messages)
	view.Ignored = ignored
	live := make(map[identity]sight)
	for _, one := range v.note(sights, view.At, &view.Stale) {
		key := identity{instance: one.Instance, queue: one.Queue}
		if one.Phase == stopped { // it adds to what a next run reports
			key.run = one.Run
		}
		// A run that was killed and the next one of the same instance may both be in the queue.
		if other, found := live[key]; !found || other.made.Before(one.made) {
			live[key] = one
		}
	}
	for _, one := range live {
		view.Reports = append(view.Reports, one.Report)
	}
	slices.SortFunc(view.Reports, func(a, b Report) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Queue.String(), b.Queue.String()))
	})
	return view, nil
}

func newest(messages []queue.Message) (sights map[identity]sight, ignored int) {
	sights = make(map[identity]sight)
	for _, m := range messages {
		var r Report
		if json.Unmarshal([]byte(m.Text), &r) != nil {
			ignored++
			continue
		}
		key := identity{r.Instance, r.Queue, r.Run}
		if other, found := sights[key]; !found || other.Sequence < r.Sequence {
			sights[key] = sight{Report: r, made: m.Inserted.Add(r.Up - r.Put)}
		}
	}
	return sights, ignored
}

// note remembers what was seen, and returns what is not stale.
func (v *Viewer) note(sights map[identity]sight, now time.Time, stale *int) (live []sight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var latest time.Time
	for _, one := range sights {
		if one.made.After(latest) {
			latest = one.made
		}
	}
	for key, one := range sights {
		known, found := v.runs[key]
		switch {
		case !found:
			known = sighting{sequence: one.Sequence, since: now, stale: latest.Sub(one.made) > lifetime(one.Report)}
		case one.Sequence > known.sequence:
			known = sighting{sequence: one.Sequence, since: now}
		}
		known.shown = now
		v.runs[key] = known
		// One with an earlier Sequence is a message that its instance could not delete.
		if known.stale || one.Sequence < known.sequence || now.Sub(known.since) > lifetime(one.Report) {
			*stale++
			continue
		}
		live = append(live, one)
	}
	v.forget(now)
	return live
}

// lifetime returns for how long a report is believed.
func lifetime(r Report) time.Duration {
	if r.Phase == stopped { // its message goes by itself
		return MaxInterval
	}
	return patience*r.Next + r.Next/2
}

// forget forgets runs that have not been seen for long. Requires mu.
func (v *Viewer) forget(now time.Time) {
	for key, known := range v.runs {
		if now.Sub(known.shown) > forgetAfter || len(v.runs) > maxRemembered {
			delete(v.runs, key)
		}
	}
}
