package producer

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// A publisher that hangs for days must not cost memory without bounds, however many queues there are.
func TestCollectedHintsAreBounded(t *testing.T) {
	var c collected
	start := time.Unix(1_000_000_000, 0)
	const queues = 3
	for i := range queues {
		later := make(map[time.Time]int64, maxDue)
		for j := range maxDue {
			later[start.Add(time.Duration(j)*time.Second)] = 10
		}
		c.add([]hints{{queue: queue.Name{Queue: fmt.Sprint(i)}, now: maxDue, bytes: 10, later: later}})
	}
	c.add([]hints{{queue: queue.Name{Queue: "0"}, later: map[time.Time]int64{start: 5}}}) // known
	due, now := 0, int64(0)
	all := c.take()
	for _, h := range all {
		due += len(h.later)
		now += h.now
		if got := h.later[start]; h.queue.Queue == "0" && got != 15 {
			t.Errorf("%d bytes become visible at first, want 15", got)
		}
	}
	if len(all) != queues || due != maxDue || now != queues*maxDue {
		t.Errorf("%d queues with %d due times and %d messages, want %d, %d and %d", len(all), due, now, queues, maxDue, queues*maxDue)
	}
	if left := c.take(); len(left) != 0 {
		t.Errorf("%d are left", len(left))
	}
}
