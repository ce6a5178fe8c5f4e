package listener

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// quiet is how long after a line no other of the same class is logged.
const quiet = 10 * time.Second

// reporter tells the observer of every error and the log of some: a flood of errors
// is not a flood of logs (V-08).
type reporter struct {
	queue   queue.Name
	onError func(error)
	logger  *slog.Logger
	errors  atomic.Int64

	mu      sync.Mutex
	classes map[string]*class // guarded by mu
}

// class is what is known of the errors that are logged alike.
type class struct {
	next       time.Time // when a line may be logged again
	suppressed int       // since the last line
}

func newReporter(q queue.Name, onError func(error), logger *slog.Logger) *reporter {
	return &reporter{queue: q, onError: onError, logger: logger, classes: make(map[string]*class)}
}

// poll reports a dequeue or a read of the depth that failed.
func (r *reporter) poll(err error) { r.report(slog.LevelWarn, "poll failed", err) }

// delivery reports what the dispatcher does.
func (r *reporter) delivery(err error) {
	if e, ok := err.(*queue.Error); ok && e.Op == "dequeue" { //nolint:errorlint // as the dispatcher says it
		r.poll(err)
		return
	}
	failure := (*dispatcher.DeliveryError)(nil)
	if !errors.As(err, &failure) {
		r.report(slog.LevelWarn, "renewal failed", err)
		return
	}
	level := slog.LevelWarn
	switch failure.Outcome {
	case dispatcher.Poisoned, dispatcher.Kept, dispatcher.Unsettled:
		level = slog.LevelError
	case dispatcher.Discarded:
		level = slog.LevelInfo
	}
	r.report(level, "delivery "+failure.Outcome.String(), err)
}

func (r *reporter) report(level slog.Level, what string, err error) {
	r.errors.Add(1)
	r.onError(err)
	suppressed, ok := r.admit(what)
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("queue", r.queue.String()), slog.Any("error", err)}
	if p := (*dispatcher.PanicError)(nil); errors.As(err, &p) {
		attrs = append(attrs, slog.String("stack", string(p.Stack)))
	}
	if suppressed > 0 {
		attrs = append(attrs, slog.Int("suppressed", suppressed))
	}
	r.logger.LogAttrs(context.Background(), level, what, attrs...)
}

// admit tells whether a line of the class may be logged now, and how many were not
// since the last.
func (r *reporter) admit(what string) (suppressed int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.classes[what]
	if c == nil {
		c = &class{}
		r.classes[what] = c
	}
	now := time.Now()
	if now.Before(c.next) {
		c.suppressed++
		return 0, false
	}
	suppressed = c.suppressed
	*c = class{next: now.Add(quiet)}
	return suppressed, true
}
