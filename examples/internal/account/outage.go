package account

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// outage says once that a server does not answer, and once that it answers again. It sees every
// request, and is safe for concurrent use.
type outage struct {
	server string // which one, for people
	logger *slog.Logger

	mu       sync.Mutex
	answered bool      // once; before that, the start of the program reports it; guarded by mu
	since    time.Time // when the first of the requests that failed in a row failed; zero if the last one succeeded; guarded by mu
	told     bool      // that it does not answer; guarded by mu
}

// longOutage is how long requests must fail before that is an outage: single failures are repeated
// silently.
const longOutage = time.Second

// note takes the result of a request that was sent with ctx.
func (o *outage) note(ctx context.Context, response *http.Response, err error) {
	// We gave this request up. Its error is the cause of its context, such as a lost lease.
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	answers := err == nil && response.StatusCode < http.StatusInternalServerError
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case answers && o.told:
		o.since, o.told = time.Time{}, false
		o.logger.Warn("the " + o.server + " answers again")
	case answers:
		o.since, o.answered = time.Time{}, true
	case !o.answered:
	case o.since.IsZero():
		o.since = time.Now()
	case !o.told && time.Since(o.since) >= longOutage:
		o.told = true
		what := "the " + o.server + " does not answer, trying again"
		if err == nil {
			what = "the " + o.server + " answers that it is busy, trying again"
		}
		o.logger.Warn(what)
	}
}
