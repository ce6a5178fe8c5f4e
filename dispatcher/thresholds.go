package dispatcher

import "sync/atomic"

// thresholds replace those of Options.Poison while a dispatcher runs. Zero means as in the options.
type thresholds struct {
	maxAttempts, maxLost atomic.Int64
}

// SetThresholds replaces MaxAttempts and MaxLost of Options.Poison from now on, also for the
// handlers that are running. Zero or less means as in the options. A [Kind] with attempts of its own
// keeps them.
func (d *Dispatcher) SetThresholds(maxAttempts, maxLost int) {
	d.thresholds.maxAttempts.Store(int64(maxAttempts))
	d.thresholds.maxLost.Store(int64(maxLost))
}

// maxAttempts returns the number of the last attempt of a message whose kind has none of its own.
func (d *Dispatcher) maxAttempts() int {
	if n := d.thresholds.maxAttempts.Load(); n > 0 {
		return int(n)
	}
	return d.options.Poison.MaxAttempts
}

// maxLost returns how many lost starts make a message poison.
func (d *Dispatcher) maxLost() int {
	if n := d.thresholds.maxLost.Load(); n > 0 {
		return int(n)
	}
	return d.options.Poison.MaxLost
}
