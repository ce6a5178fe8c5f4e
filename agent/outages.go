package agent

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
)

// logInterval is how long after a line in the log the same failure is not logged again.
const logInterval = 10 * time.Minute

// failing identifies what fails, so that the log has one line for it and not one for each measurement.
type failing struct {
	doing string
	queue queue.Name
}

// compare orders failures, so that a log is the same in each run.
func (f failing) compare(g failing) int {
	return cmp.Or(cmp.Compare(f.queue.String(), g.queue.String()), cmp.Compare(f.doing, g.doing))
}

// outage is a failure that lasts.
type outage struct {
	since, logged time.Time
	times         int
}

// outages are the failures of one pool that last. Only the goroutine of the pool uses it.
type outages struct {
	logger *slog.Logger
	now    map[failing]*outage
}

// round logs what began, what lasts and what has ended, given all errors of one measurement.
func (o *outages) round(ctx context.Context, errs []*Error) {
	at := time.Now()
	seen := map[failing]bool{}
	for _, e := range errs {
		if e.once {
			o.logger.ErrorContext(ctx, e.Error(), stack(e)...)
			continue
		}
		f := failing{cmp.Or(e.kind, e.Doing), e.Queue}
		seen[f] = true
		last := o.now[f]
		if last == nil {
			last = &outage{since: at}
			o.now[f] = last
		}
		last.times++
		if last.logged.IsZero() || at.Sub(last.logged) >= logInterval {
			last.logged = at
			o.logger.ErrorContext(ctx, e.Error(), append([]any{"times", last.times}, stack(e)...)...)
		}
	}
	for _, f := range slices.SortedFunc(maps.Keys(o.now), failing.compare) {
		if last := o.now[f]; !seen[f] {
			delete(o.now, f)
			o.logger.InfoContext(ctx, "it works again: "+f.doing, "queue", f.queue.String(), "failed", last.times, "for", at.Sub(last.since).Round(time.Second))
		}
	}
}

// stack returns the stack of a panic, for the log.
func stack(err error) []any {
	var p *PanicError
	if errors.As(err, &p) {
		return []any{"stack", p.Stack}
	}
	return nil
}
