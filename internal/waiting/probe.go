package waiting

import (
	"math/bits"
	"time"
)

// Probe decides when something that has failed is tried again: after a pause, by one caller at a
// time. It has no lock of its own. The zero value allows a probe immediately.
type Probe struct {
	due      time.Time // end of the pause
	underway bool
}

// Pause allows no probe before the given time.
func (p *Probe) Pause(until time.Time) { p.due = until }

// Due returns the end of the pause.
func (p *Probe) Due() time.Time { return p.due }

// Possible reports whether a probe may begin: the pause is over, and no other one is under way.
func (p *Probe) Possible(now time.Time) bool { return !p.underway && !now.Before(p.due) }

// Begin begins a probe if one is possible.
func (p *Probe) Begin(now time.Time) bool {
	if !p.Possible(now) {
		return false
	}
	p.underway = true
	return true
}

// End ends the probe that is under way, if there is one, and reports whether there was.
func (p *Probe) End() (was bool) {
	was, p.underway = p.underway, false
	return was
}

// Doubled returns first, doubled so many times, up to most.
func Doubled(first time.Duration, times int, most time.Duration) time.Duration {
	if times >= bits.LeadingZeros64(uint64(first))-1 { // it would overflow
		return most
	}
	return min(first<<times, most)
}
