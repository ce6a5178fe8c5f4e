package plainhttp

import (
	"time"
)

// instant is a time as the duration since the server was created plus an hour. It is cheaper than
// a [time.Time] and never 0.
type instant time.Duration

func (s *Server) now() instant { return instant(time.Since(s.start) + time.Hour) }

func (s *Server) toTime(at instant) time.Time {
	if at == noDeadline {
		return time.Time{}
	}
	return s.start.Add(time.Duration(at) - time.Hour)
}

// readWithin lets reads fail after d, or up to a sixteenth later; 0 means never. On a busy
// connection most calls keep an earlier deadline: setting one costs as much as parsing a request.
func (c *conn) readWithin(d time.Duration) {
	if by, changed := c.server.deadline(c.readBy, d); changed {
		c.readBy = by
		_ = c.raw.SetReadDeadline(c.server.toTime(by)) // a closed one fails at reading
	}
}

func (c *conn) writeWithin(d time.Duration) {
	if by, changed := c.server.deadline(c.writeBy, d); changed {
		c.writeBy = by
		_ = c.raw.SetWriteDeadline(c.server.toTime(by))
	}
}

// noDeadline means that no deadline is set.
const noDeadline instant = 0

func (s *Server) deadline(set instant, d time.Duration) (by instant, changed bool) {
	if d == 0 {
		return noDeadline, set != noDeadline
	}
	least := s.now() + instant(d)
	most := least + instant(d/16)
	return most, set < least || set > most
}
