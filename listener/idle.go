package listener

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/scaling"
)

// Idle is how long a loop waits between polls of an empty queue. The zero value is the default. It may
// be copied.
//
// A loop that waits Max between polls costs one transaction per Max: at one second 86,400 a day, at
// one minute 1,440. The waits of the loops that stay are spread over [Max, 1.1 Max), so that workers do
// not poll in step, and one poll per Max is an upper bound.
//
// That is one transaction per Max for each instance. With Fleet set to the number of instances, each
// waits Fleet × Max, and all together poll once per Max, however many they are. The first of these
// waits is random within 0…Fleet × Max, so that instances that start together, or run out of work
// together, do not poll together. An idle spell thus costs each instance the few polls of the curve and
// one more.
//
// The phases of a fleet are independent, so a message that comes to n idle instances waits
// Fleet × Max / (n + 1) on average: half of Max for one instance, as without Fleet, and close to Max
// for many. The jitter adds a twentieth, and single messages up to a tenth, because an instance that
// takes one leaves a gap where it would have polled. The wait exceeds x with a probability of about
// e^(-x/Max): one message in 20 waits longer than 3 Max. The longest wait is 1.1 × Fleet × Max, and an
// instance that is alone, because the others are busy, paused or stopped, takes half of that on
// average. So the number must follow the fleet: too high a Fleet delays messages, too low a one costs
// requests. An instance that finds work resets only its own waits.
type Idle struct {
	// Min is the shortest wait, after the first empty poll. Defaults to 100 ms, or to Max if
	// that is shorter.
	Min time.Duration

	// Max is the longest wait. A loop whose wait has reached it may end. Defaults to 1 s, or to
	// Min if that is longer.
	Max time.Duration

	// Fleet is how many instances poll the queue. Once its waits have reached Max, a loop waits
	// Fleet × Max between polls instead of Max, from a random phase on, so that with one loop each they
	// poll once per Max together. It must not be negative. 0 counts as 1. Defaults to 1.
	Fleet int

	// Curve returns how long a loop waits after its k-th empty poll in a row, from 1. The wait is kept
	// within Min…Max, and a negative one means Max. It is called concurrently. If it panics, the default
	// is used and OnError is called. Defaults to Min + (2^k − 1) × 100 ms ± 20 %, with the listener's own
	// random numbers.
	Curve func(k int) time.Duration
}

// Defaults of [Idle].
const (
	defaultIdleMin = 100 * time.Millisecond
	defaultIdleMax = time.Second // the cap that the requirements recommend
)

// longestFleetWait bounds Fleet × Max.
const longestFleetWait = 100 * 365 * 24 * time.Hour

// idleWithDefaults fills in Min and Max. It returns an error if a bound or Fleet is negative, if
// Min is above Max, if one has no unit, or if Fleet × Max is over a century, which may be no
// Duration any more.
func idleWithDefaults(i Idle) (Idle, error) {
	if i.Min < 0 || i.Max < 0 {
		return i, fmt.Errorf("Fetch.Idle: the bounds %v and %v must not be negative", i.Min, i.Max)
	}
	if err := errors.Join(units.Wait("Fetch.Idle.Min", i.Min), units.Wait("Fetch.Idle.Max", i.Max)); err != nil {
		return i, err
	}
	if i.Min == 0 {
		i.Min = defaultIdleMin
		if i.Max > 0 {
			i.Min = min(i.Min, i.Max)
		}
	}
	if i.Max == 0 {
		i.Max = max(defaultIdleMax, i.Min)
	}
	if i.Min > i.Max {
		return i, fmt.Errorf("Fetch.Idle: the minimum %v is above the maximum %v", i.Min, i.Max)
	}
	if i.Fleet < 0 {
		return i, fmt.Errorf("Fetch.Idle: the fleet %d must not be negative: it is the number of instances", i.Fleet)
	}
	if i.Fleet > int(longestFleetWait/i.Max) {
		return i, fmt.Errorf("Fetch.Idle: the fleet %d times the maximum %v is over a century: Fleet is the number of instances", i.Fleet, i.Max)
	}
	return i, nil
}

// fleetWait returns the wait of a loop that has reached Max and stays: Fleet × Max, with up to 10 %
// jitter added. So processes that started together do not poll together, and one poll per Fleet ×
// Max stays an upper bound. That jitter alone would spread a fleet over a tenth of its period, so
// the first wait is anywhere within the period.
func (l *loop) fleetWait(idle *Idle) time.Duration {
	wait := idle.Max * time.Duration(max(idle.Fleet, 1))
	if idle.Fleet > 1 && !l.phased {
		l.phased = true
		return time.Duration(l.jitters.forWait() * float64(wait))
	}
	return wait + time.Duration(l.jitters.forWait()*float64(wait)/10)
}

// curveWait returns the wait of a loop after one more empty poll.
func (l *loop) curveWait(idle *Idle) (wait time.Duration) {
	l.risen++
	if idle.Curve != nil && l.hooks.Call("Idle.Curve", func() { wait = idle.Curve(l.risen) }) {
		return idleWait(idle, wait)
	}
	return scaling.Curve(idle.Min, idle.Max, l.risen, func(n int) int {
		return int(l.jitters.forCurve() * float64(n))
	})
}

// idleWait returns the curve's wait, moved into the bounds. A negative one means Max.
func idleWait(i *Idle, next time.Duration) time.Duration {
	if next < 0 {
		return i.Max
	}
	return min(max(next, i.Min), i.Max)
}

// idleBesideHook returns an error if Idle is set although the QueueEmpty hook overrides it.
func idleBesideHook(idle Idle, hook bool) error {
	if hook && isSet(idle) {
		return errors.New("Fetch.Idle and Fetch.QueueEmpty are both set, but QueueEmpty overrides Idle: set only one of them")
	}
	return nil
}

func isSet(i Idle) bool { return i.Min != 0 || i.Max != 0 || i.Fleet != 0 || i.Curve != nil }
