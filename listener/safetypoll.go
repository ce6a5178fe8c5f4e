package listener

import (
	"context"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// watchSafety makes a loop poll when none has for a while, so that an event that was lost costs no more
// than that time. It runs until ctx ends; the session owns it.
func (s *session) watchSafety(ctx context.Context) {
	interval := s.options.SafetyPoll
	// Longer by up to 10 %, so that processes that started together do not poll together.
	polls := 0
	next := func() time.Duration {
		polls++
		return interval + time.Duration(waiting.Jitter(s.key+"/safety", polls)*float64(interval)/10)
	}
	wanted := next()
	timer := time.NewTimer(wanted)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait := wanted - time.Since(s.pool.hears().at)
		if wait <= 0 {
			s.hear(false)
			wanted = next()
			wait = wanted
		}
		timer.Reset(wait)
	}
}
