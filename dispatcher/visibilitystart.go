package dispatcher

import "time"

// trouble is how long leases that were too short count for what was found. It is shorter than a calm
// period: the minimum that they raise sinks slowly, and long after them would look like a need.
const trouble = calmPeriod / 2

// BeginWith makes the dispatcher begin with a visibility that another worker has found, or a
// person. Within the bounds of Options.Visibility it is the shortest for ten minutes, and is then
// halved every ten minutes in which no lease would have been too short; meanwhile handling times
// become known, and may ask for more. Zero means Options.Visibility.First. A value that is the
// same as the last one changes nothing. A smaller one replaces it at once.
func (d *Dispatcher) BeginWith(visibility time.Duration) { d.visibility.begin(visibility) }

// FoundVisibility returns the visibility that handling times call for, and leases that were too short
// in the last five minutes, in whole seconds. It is zero while they call for none, and when the
// visibility is fixed.
func (d *Dispatcher) FoundVisibility() time.Duration { return d.visibility.found() }

// begin implements [Dispatcher.BeginWith].
func (f *visibilityEstimator) begin(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d == f.told {
		return
	}
	floor := min(d, f.bounds.Max)
	if d > f.told { // a lease here may have needed more
		floor = max(floor, f.floor)
	}
	f.told, f.floor, f.shortAt = d, floor, time.Now()
	if f.n >= recompute {
		return
	}
	if f.estimate = f.bounds.First; d > 0 {
		f.estimate = min(max(d, f.bounds.Min), f.bounds.Max)
	}
}

// found implements [Dispatcher.FoundVisibility].
func (f *visibilityEstimator) found() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bounds.Min == f.bounds.Max {
		return 0
	}
	now := time.Now()
	f.relax(now)
	found := 2 * f.p95
	if now.Sub(f.neededAt) < trouble {
		found = max(found, f.floor)
	}
	return wholeSeconds(min(found, f.bounds.Max))
}
