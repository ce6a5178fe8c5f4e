package listener

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/units"
)

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

func isSet(i Idle) bool { return i.Min != 0 || i.Max != 0 || i.Fleet != 0 || i.New != nil }
