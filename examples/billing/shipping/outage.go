package shipping

import (
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// longOutage is how long requests must fail before that is an outage: single failures are repeated, and nobody needs to
// know.
const longOutage = time.Second

// outage says once that the Initiator does not answer, and once that it answers again. It is safe for concurrent use.
type outage struct {
	logger *slog.Logger

	mu    sync.Mutex
	since time.Time // when the first of the attempts that failed in a row began; zero if the last one got an answer; guarded by mu
	told  bool      // guarded by mu
}

// note takes an attempt without an answer.
func (o *outage) note(begun time.Time, err error) {
	o.mu.Lock()
	if o.since.IsZero() {
		o.since = begun
	}
	tell := !o.told && time.Since(o.since) >= longOutage
	o.told = o.told || tell
	o.mu.Unlock()
	if tell {
		o.logger.Warn(fmt.Sprintf("%v; trying again", err))
	}
}

// end takes an answer.
func (o *outage) end() {
	o.mu.Lock()
	told := o.told
	o.since, o.told = time.Time{}, false
	o.mu.Unlock()
	if told {
		o.logger.Warn("the Initiator answers again")
	}
}
