package producer

import (
	"time"

	"github.com/millrace/millrace/queue"
)

// hints is what events have to be published for, of one queue.
type hints struct {
	queue queue.Name
	now   int64               // messages that are visible
	bytes int64               // of these
	later map[time.Time]int64 // the bytes of the others, by when they become visible
}

// maxDue bounds how many due times collected hints have. What is beyond is dropped.
const maxDue = 1 << 16

// collected is the hints of one queue or more. The zero value is none.
type collected struct {
	queues map[queue.Name]*hints
	due    int // how many due times all of them have
}

// add adds hints. What becomes visible in the same second becomes one event of its queue.
func (c *collected) add(all []hints) {
	if c.queues == nil {
		c.queues = make(map[queue.Name]*hints)
	}
	for _, more := range all {
		h := c.queues[more.queue]
		if h == nil {
			h = &hints{queue: more.queue}
			c.queues[more.queue] = h
		}
		h.now += more.now
		h.bytes += more.bytes
		if h.later == nil && len(more.later) > 0 {
			h.later = make(map[time.Time]int64)
		}
		for due, bytes := range more.later {
			due = due.Add(time.Second - 1).Truncate(time.Second)
			_, known := h.later[due]
			if !known && c.due >= maxDue {
				continue
			}
			if !known {
				c.due++
			}
			h.later[due] += bytes
		}
	}
}

// take returns what was collected, and leaves none.
func (c *collected) take() []hints {
	all := make([]hints, 0, len(c.queues))
	for _, h := range c.queues {
		all = append(all, *h)
	}
	*c = collected{}
	return all
}

// hintsFor returns the hints for a message that was sent just now, for every queue that it may be in.
func hintsFor(s *Sending) []hints {
	all := make([]hints, len(s.where))
	for i, name := range s.where {
		all[i] = hints{queue: name}
		if s.Delay <= 0 {
			all[i].now, all[i].bytes = 1, s.bytes
			continue
		}
		// The port rounds delays up. A worker that comes too early would find nothing.
		due := time.Now().Add((s.Delay + time.Second - 1).Truncate(time.Second))
		all[i].later = map[time.Time]int64{due: s.bytes}
	}
	return all
}
