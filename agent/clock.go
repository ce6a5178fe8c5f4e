package agent

import "time"

// passed is how far the clocks have gone between two measurements.
type passed struct {
	steady time.Duration // the monotonic clock, which nobody sets, and which may stand still while the machine sleeps
	wall   time.Duration // the clock that people read
}

// clockStep is by how much the clocks may differ between two measurements: so much do time servers correct a clock little by little, and a
// rate does not notice.
const clockStep = time.Second

// between returns how far the clocks have gone between two readings in this process.
func between(from, to time.Time) passed {
	return passed{steady: to.Sub(from), wall: to.Round(0).Sub(from.Round(0))}
}

// agree reports whether both clocks have gone as far. If not, the clock was set or the machine has slept, and nobody knows how much
// time has passed.
func (p passed) agree() bool { return (p.wall - p.steady).Abs() <= clockStep }

// setBack returns by how much the clock was set back, zero if it was not. A clock that was set forward looks like a machine
// that has slept.
func (p passed) setBack() time.Duration {
	if back := p.steady - p.wall; back > clockStep {
		return back
	}
	return 0
}
