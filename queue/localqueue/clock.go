package localqueue

import (
	"math"
	"sync/atomic"
	"time"
)

// clock is the engine's clock. It advances with the monotonic clock of the process and
// starts at the wall clock, but never before a time that the store has from an earlier run:
// so a visible message stays visible, and a hidden one stays hidden for as long as was
// asked for.
//
// Times are shown by the wall clock, which is what clients have: shown subtracts the
// offset.
type clock struct {
	start time.Time // with both readings
	first instant   // the engine's time at start
	wall  func(time.Time) instant

	offset atomic.Int64 // the engine's time minus the wall clock, after its last step
}

// minClockStep, in nanoseconds, is the least difference that counts as setting the wall
// clock. Anything below is clock discipline such as NTP.
const minClockStep = int64(time.Second)

// newClock returns a clock that starts now, or at the given time of an earlier run if that
// is later.
func newClock(earlier instant) *clock {
	c := &clock{wall: wallTime}
	c.begin(earlier)
	return c
}

func (c *clock) begin(earlier instant) {
	c.start = time.Now()
	wall := c.wall(c.start)
	c.first = max(wall, earlier)
	c.offset.Store(int64(c.first - wall))
}

// now returns the engine's time.
func (c *clock) now() instant {
	at := time.Now()
	now := c.first + instant(at.Sub(c.start))
	ahead := int64(now - c.wall(at))
	if d := ahead - c.offset.Load(); d > minClockStep || d < -minClockStep {
		c.offset.Store(ahead)
	}
	return now
}

// shown returns an instant as the service shows it: by the wall clock, truncated to whole
// seconds, in UTC.
func (c *clock) shown(i instant) time.Time {
	if i == never {
		return forever
	}
	return time.Unix((int64(i)-c.offset.Load())/int64(time.Second), 0).UTC()
}

// maxWallSeconds, in seconds since 1970, is the latest wall clock that the engine accepts:
// an instant must still be able to hold the longest TTL.
const maxWallSeconds = 6_942_585_600 // 2190

// wallTime returns the wall clock as an instant, limited to 1970…2190: a machine whose
// clock battery is empty may report anything.
func wallTime(t time.Time) instant {
	switch seconds := t.Unix(); {
	case seconds < 0:
		return 0
	case seconds > maxWallSeconds:
		return instant(maxWallSeconds * int64(time.Second))
	default:
		return instant(t.UnixNano())
	}
}

// instant is a point in time by the engine's clock, in nanoseconds since 1970. It takes 8
// bytes instead of the 24 of a time.Time, for each message several times, and is compared
// by one instruction.
type instant int64

// never is the expiry of a message without a TTL.
const never instant = math.MaxInt64

// forever is how the service shows never (Put Message, TTL -1).
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// after adds whole seconds. The port's limits, seven days of visibility and 2³¹ seconds of
// TTL, cannot overflow it.
func (i instant) after(seconds int64) instant { return i + instant(seconds*int64(time.Second)) }
