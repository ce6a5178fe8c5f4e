package listener

import (
	"errors"
	"time"

	"github.com/millrace/millrace/queue"
)

// A loop whose dequeue was held back by a limit waits as long as the limit says, within these bounds, and
// then up to a tenth longer: loops that were refused together do not ask together. The spread is bounded,
// because what a limit allows may be lost if nobody asks for it soon.
const (
	minLimitWait   = time.Millisecond
	maxLimitWait   = 30 * time.Second
	maxLimitSpread = 100 * time.Millisecond
)

// longLimit is from which wait on events go to other instances, which may have room.
const longLimit = time.Second

// limitOf returns the limit that held a request back, or nil.
func limitOf(err error) *queue.LimitedError {
	limit := (*queue.LimitedError)(nil)
	if err == nil || !errors.As(err, &limit) {
		return nil
	}
	return limit
}

// onLimited returns how long to wait after a dequeue that a limit held back. Nothing was sent: it is no
// poll, neither an empty one nor an error, and nobody is told. The slots are given back, because
// others may share them. owed says whether that dequeue would have served what was heard.
func (l *loop) onLimited(limit *queue.LimitedError, reserved int, owed bool) time.Duration {
	l.limited = true
	l.limits.Add(1)
	l.dispatcher.Release(reserved)
	l.pool.refused(owed)
	wait := min(max(limit.After, minLimitWait), maxLimitWait)
	if wait >= longLimit {
		l.passOn(owed)
	}
	return wait + time.Duration(l.nextSpread()*float64(min(wait/10, maxLimitSpread)))
}
