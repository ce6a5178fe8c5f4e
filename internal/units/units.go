// Package units refuses durations that must be numbers without a unit: Timeout: 30 compiles, and
// means 30 ns.
package units

import (
	"fmt"
	"time"
)

// Wait returns an error if d is positive and shorter than a millisecond. It is for waits and
// time-outs within the process. The caller decides what zero and negative durations mean.
func Wait(name string, d time.Duration) error { return atLeast(name, d, time.Millisecond) }

// Visibility returns an error if d is positive and shorter than a second. It is for visibilities,
// delays, and lifetimes: the service counts them in whole seconds.
func Visibility(name string, d time.Duration) error { return atLeast(name, d, time.Second) }

func atLeast(name string, d, least time.Duration) error {
	if d <= 0 || d >= least {
		return nil
	}
	if d < time.Millisecond { // nobody means that
		return fmt.Errorf("%s %v is shorter than %v: give it a unit, such as %d*time.Second", name, d, least, d)
	}
	return fmt.Errorf("%s %v is shorter than %v", name, d, least)
}
