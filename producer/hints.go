package producer

import "time"

// hints is what events have to be published for.
type hints struct {
	now   int64               // messages that are visible
	bytes int64               // of these
	later map[time.Time]int64 // the bytes of the others, by when they become visible
}

func (h *hints) empty() bool { return h.now == 0 && len(h.later) == 0 }

// maxDue bounds how many due times hints have. What is beyond is dropped.
const maxDue = 1 << 16

// add adds hints. What becomes visible in the same second becomes one event.
func (h *hints) add(more hints) {
	h.now += more.now
	h.bytes += more.bytes
	if h.later == nil && len(more.later) > 0 {
		h.later = make(map[time.Time]int64)
	}
	for due, bytes := range more.later {
		due = due.Add(time.Second - 1).Truncate(time.Second)
		if _, known := h.later[due]; known || len(h.later) < maxDue {
			h.later[due] += bytes
		}
	}
}

// hint returns the hints for one message that was sent just now.
func hint(bytes int64, delay time.Duration) hints {
	if delay <= 0 {
		return hints{now: 1, bytes: bytes}
	}
	// The port rounds delays up. A worker that comes too early would find nothing.
	due := time.Now().Add((delay + time.Second - 1).Truncate(time.Second))
	return hints{later: map[time.Time]int64{due: bytes}}
}
