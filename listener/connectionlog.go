package listener

import (
	"log/slog"
	"time"
)

// connectWithin is how long a source may take to connect before a line says that it has not.
const connectWithin = time.Second

// connectionLog logs whether events reach the listener, at most one line in logInterval, and in the end
// what holds.
type connectionLog struct {
	begun     bool
	ever      bool // events have reached the listener
	connected bool // as was logged, or as is expected at first
	timer     *time.Timer
	next      time.Time // when a line may be logged
}

func (c *connectionLog) log(s *session) {
	now := s.pool.hears().connected
	c.ever = c.ever || now
	if !c.begun { // a source that connects soon is not worth a line
		c.begun, c.connected, c.next = true, true, time.Now().Add(connectWithin)
	}
	if now == c.connected {
		return
	}
	if wait := time.Until(c.next); wait > 0 {
		c.stop()
		c.timer = time.NewTimer(wait)
		return
	}
	c.connected, c.next = now, time.Now().Add(logInterval)
	switch {
	case now:
		s.report.info("wake-ups come")
		return
	case !c.ever:
		s.report.info("no wake-ups yet: polling until they come")
		return
	}
	s.report.line(slog.LevelWarn, "wake-ups are lost: polling until they come back")
}

// later is ready when a line may be logged that could not be before.
func (c *connectionLog) later() <-chan time.Time {
	if c.timer == nil {
		return nil
	}
	return c.timer.C
}

func (c *connectionLog) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}
