package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Error is something that failed for one pool. The agent goes on, and tries again at the next measurement.
type Error struct {
	// Pool is the name of the pool.
	Pool string

	// Doing is what was attempted, such as "read the depth".
	Doing string

	// Queue is where; the zero value if it concerns no queue.
	Queue queue.Name

	// Consequence is what follows from it, such as that a figure is unknown.
	Consequence string

	// Hint is what to do about it; "" if there is nothing to say.
	Hint string

	// Err is why.
	Err error

	kind string // of failures that are one in the log; defaults to Doing
	once bool   // it does not last until it works again
}

// Error returns all of it in one sentence.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s: %s", e.Pool, e.Doing)
	if e.Queue != (queue.Name{}) {
		fmt.Fprintf(&b, " of %v", e.Queue)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	for _, more := range []string{e.Consequence, e.Hint} {
		if more != "" {
			b.WriteString("; " + more)
		}
	}
	return b.String()
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// MarshalText returns the sentence, for JSON.
func (e *Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// What the agent does, for [Error.Doing].
const (
	readingDepth     = "read the depth"
	peeking          = "look at the oldest message"
	readingReports   = "read the reports"
	readingInstances = "read how many instances there are"
	subscribing      = "subscribe to wake-ups"
	readingHistory   = "read the history"
	keepingHistory   = "keep the history"
)

// queueHint says what to do about an error of a queue.
func queueHint(err error, right string) string {
	switch {
	case errors.Is(err, queue.ErrQueueMissing):
		return "create the queue, or take it out of the pool"
	case errors.Is(err, queue.ErrQueueBeingDeleted):
		return "it can be created again in about 30 s"
	case errors.Is(err, queue.ErrUnauthorized):
		return "give the agent the right to " + right
	case errors.Is(err, errHangs):
		return "the queue ignores contexts; restart the agent if this lasts"
	}
	return ""
}

// PanicError is a panic in a queue, an actuator or a source of wake-ups.
type PanicError struct {
	Value any    // passed to panic
	Stack string // the stack of the goroutine
}

// Error returns the value, and not the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("it panicked: %v", e.Value) }

func panicked(f *hook.Failure) error { return &PanicError{Value: f.Value, Stack: string(f.Stack)} }

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
