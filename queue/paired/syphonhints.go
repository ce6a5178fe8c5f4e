package paired

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// syphonHints tell the syphons of a queue that messages may have been diverted, so that they poll soon.
// They are hints: without them the messages come home later.
type syphonHints struct {
	mu       sync.Mutex
	syphons  []*Syphon // those that run; guarded by mu
	failures int       // receives in a row that failed; guarded by mu
	since    time.Time // the first of them; guarded by mu
}

func (h *syphonHints) add(s *Syphon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syphons = append(h.syphons, s)
}

func (h *syphonHints) remove(s *Syphon) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.syphons = slices.DeleteFunc(h.syphons, func(one *Syphon) bool { return one == s })
}

// diverted notes that this process put a message into a backlog queue.
func (h *syphonHints) diverted(backlog queue.Name) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.syphons {
		for _, l := range s.lanes {
			if l.backlog.Name() == backlog {
				l.wake()
			}
		}
	}
}

// received takes the result of a receive. When the primary queue is back after an outage in which sends of
// other processes may have failed over, there may be messages in every backlog queue. A
// receive that its caller gave up says nothing.
func (h *syphonHints) received(ctx context.Context, err error, interval time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		if h.failures > 1 && time.Since(h.since) >= interval/2 {
			for _, s := range h.syphons {
				s.wakeOthers(nil)
			}
		}
		h.failures = 0
	case ctx.Err() == nil && (errors.Is(err, queue.ErrUnavailable) || errors.Is(err, queue.ErrOutcomeUnknown)):
		if h.failures == 0 {
			h.since = time.Now()
		}
		h.failures++
	}
}
