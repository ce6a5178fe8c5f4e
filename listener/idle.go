package listener

import (
	"errors"
	"fmt"
	"time"
)

// Defaults of [Idle].
const (
	defaultIdleMin = 100 * time.Millisecond
	defaultIdleMax = time.Second // the cap that the requirements recommend
)

// idleWithDefaults fills in Min and Max. It returns an error if a bound is negative, if Min is
// above Max, or if Max is under 1 µs, which is a number without a unit.
func idleWithDefaults(i Idle) (Idle, error) {
	if i.Min < 0 || i.Max < 0 {
		return i, fmt.Errorf("idle bounds %v and %v must not be negative", i.Min, i.Max)
	}
	if i.Max > 0 && i.Max < time.Microsecond { // a number without its unit, which compiles
		return i, fmt.Errorf("idle maximum %v is too short for any request: give it a unit, such as %d*time.Second", i.Max, i.Max)
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
		return i, fmt.Errorf("idle minimum %v is above the maximum %v", i.Min, i.Max)
	}
	return i, nil
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
		return errors.New("Idle and QueueEmpty are both set, but QueueEmpty overrides Idle: set only one of them")
	}
	return nil
}

func isSet(i Idle) bool { return i.Min != 0 || i.Max != 0 || i.New != nil }
