package localqueue

import (
	"math"
	"sync/atomic"
	"time"
)

// clock is the time that an engine lives by. It goes forward with the monotonic clock of the
// process, whatever becomes of the wall clock, and begins where the wall clock is, but never
// before a time that the store has from an earlier run: so what was due stays due, and what
// is hidden stays hidden for as long as was asked for and no longer.
//
// Times are shown by the wall clock, which is what clients have: the difference is taken off.
type clock struct {
	start time.Time // by both clocks
	first instant   // the engine's time then
	wall  func(time.Time) instant

	offset atomic.Int64 // the engine's time less the wall clock's, by the last step of that
}

// clockStep is by how much, in nanoseconds, the wall clock must differ from what was expected to
// have been set. Less is the work of those who keep it right.
const minClockStep = int64(time.Second)

// newClock returns a clock that begins now, or where an earlier run was if that is later.
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

// shown is an instant as the service shows it: by the wall clock, cut to whole seconds, in UTC.
func (c *clock) shown(i instant) time.Time {
	if i == never {
		return forever
	}
	return time.Unix((int64(i)-c.offset.Load())/int64(time.Second), 0).UTC()
}

// lastYear is in seconds since 1970 when instants begin to be too few for the longest life
// that a message may have.
const maxWallSeconds = 6_942_585_600 // 2190

// wallTime is what the wall clock says, if that is believable: one that has lost its battery
// may say anything.
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

// instant is a point in time in nanoseconds since 1970, by the clock of an engine: 8 bytes instead of the
// 24 of a time.Time, a million times, and compared by one instruction.
type instant int64

// never is when a message without end expires.
const never instant = math.MaxInt64

// forever is how the service shows never (Put Message, TTL -1).
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// after adds whole seconds. Both bounds of the port, seven days of visibility
// and 2³¹ seconds of life, are far from overflowing.
func (i instant) after(seconds int64) instant { return i + instant(seconds*int64(time.Second)) }
