package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// reporter passes every error to OnError, and logs an error unless it logged the same a moment ago.
type reporter struct {
	queue   queue.Name
	onError func(error)
	logger  *slog.Logger
	errors  atomic.Int64
	hooks   *hook.Guard // calls onError and logger, and the listener's hooks
	limiter logLimiter

	mu     sync.Mutex
	last   error     // the last error of any kind; guarded by mu
	lastAt time.Time // guarded by mu
}

func newReporter(q queue.Name, onError func(error), logger *slog.Logger) *reporter {
	r := &reporter{queue: q, onError: onError, logger: logger}
	r.hooks = hook.New(r.hook)
	return r
}

// poll reports a failed dequeue or reading of the depth.
func (r *reporter) poll(err error) { r.report(slog.LevelWarn, "poll failed", err) }

// beacon reports a failed report to the control queue.
func (r *reporter) beacon(err error) {
	r.report(slog.LevelWarn, "report to the control queue failed", err)
}

func (r *reporter) delivery(err error) {
	switch e := err.(type) { //nolint:errorlint // the dispatcher tells of these as they are
	case *dispatcher.DeliveryError:
		level := slog.LevelWarn
		switch e.Outcome {
		case dispatcher.Poisoned, dispatcher.Kept, dispatcher.Unsettled:
			level = slog.LevelError
		case dispatcher.Discarded, dispatcher.Duplicate:
			level = slog.LevelInfo
		}
		r.report(level, "delivery "+string(e.Outcome), err)
	case *dispatcher.DuplicatesError:
		r.report(slog.LevelWarn, "duplicates may be handled", err)
	case *dispatcher.ClaimsError:
		r.report(slog.LevelWarn, "body stays stored", err)
	case *dispatcher.HookError:
		r.report(slog.LevelError, "hook "+e.Hook+" failed", err)
	case *dispatcher.StuckError:
		r.report(slog.LevelError, "handler stuck", err)
	case *dispatcher.SetupError:
		r.report(slog.LevelWarn, "setup cannot work as intended", err)
	case *queue.Error:
		if e.Op == "dequeue" {
			r.poll(err)
			return
		}
		r.report(slog.LevelWarn, "renewal failed", err)
	default:
		r.report(slog.LevelWarn, "renewal failed", err)
	}
}

// The hooks that receive errors. A failure of one is reported to the other.
const (
	onErrorHook = "OnError"
	loggerHook  = "Logger"
)

func (r *reporter) hook(f hook.Failure) {
	err := &dispatcher.HookError{Queue: r.queue, Hook: f.Hook, Value: f.Value, Stack: f.Stack, Callers: f.Callers, Times: f.Times}
	switch f.Hook {
	case onErrorHook:
		r.note(err)
		r.log(slog.LevelError, "hook OnError failed", err)
	case loggerHook:
		r.note(err)
		hook.Run(func() { r.onError(err) }) // if that fails too, only standard error is left
		fmt.Fprintf(os.Stderr, "%v\n%s\n", err, err.Stack)
	default:
		r.delivery(err)
	}
}

func (r *reporter) report(level slog.Level, what string, err error) {
	r.note(err)
	r.hooks.Call(onErrorHook, func() { r.onError(err) })
	r.log(level, what, err)
}

func (r *reporter) note(err error) {
	r.errors.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last, r.lastAt = err, time.Now()
}

func (r *reporter) lastError() (at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lastAt, r.last
}

// log logs an error, unless one of its kind was logged a moment ago. Messages moved to the
// poison queue and panics are always logged.
func (r *reporter) log(level slog.Level, what string, err error) {
	r.hooks.Call(loggerHook, func() {
		stack, panicked := stackOf(err)
		admit := r.limiter.allow
		if panicked || endsAsPoison(err) {
			admit = r.limiter.allowAlways
		}
		leftOut, ok := admit(what, reasonOf(err))
		if !ok {
			return
		}
		attrs := r.describe(err)
		if len(stack) > 0 {
			attrs = append(attrs, slog.Any("stack", stack))
		}
		if leftOut > 0 {
			attrs = append(attrs, slog.Int("left_out", leftOut))
		}
		r.logger.LogAttrs(context.Background(), level, what, attrs...)
	})
}

func (r *reporter) describe(err error) []slog.Attr {
	switch e := err.(type) { //nolint:errorlint // one that is wrapped says more
	case *dispatcher.DeliveryError:
		return e.LogValue().Group()
	case *dispatcher.DuplicatesError:
		return e.LogValue().Group()
	case *dispatcher.ClaimsError:
		return e.LogValue().Group()
	}
	return []slog.Attr{slog.String("queue", r.queue.String()), slog.Any("error", err)}
}

// reasonOf returns the text that identifies the kind of an error.
func reasonOf(err error) string {
	if e, ok := err.(*dispatcher.DeliveryError); ok && e.Err != nil { //nolint:errorlint // as above
		return e.Err.Error()
	}
	if e, ok := err.(*dispatcher.ClaimsError); ok { //nolint:errorlint // as above
		return e.Err.Error()
	}
	return err.Error()
}

func endsAsPoison(err error) bool {
	e, ok := err.(*dispatcher.DeliveryError) //nolint:errorlint // as above
	return ok && (e.Outcome == dispatcher.Poisoned || e.Outcome == dispatcher.Kept)
}

func stackOf(err error) (stack []string, panicked bool) {
	var failed *dispatcher.HookError
	var failure *dispatcher.PanicError
	switch {
	case errors.As(err, &failed):
		return frames(failed.Callers), true
	case errors.As(err, &failure):
		return frames(failure.Callers), true
	}
	return nil, false
}

// limited logs that a source of failures is limited, or is not any more. Of one that comes and goes it
// logs as much as of equal errors.
func (r *reporter) limited(s FailingSource, ended bool) {
	level, what := slog.LevelWarn, "failures are limited"
	if ended {
		level, what = slog.LevelInfo, "failures are not limited any more"
	}
	if _, ok := r.limiter.allow(what+": "+s.Source, ""); ok { // what is left out is told at the end
		r.line(level, what, slog.String("source", s.Source), slog.Time("since", s.Since), slog.Int("slots", s.Slots), slog.String("error", s.Error))
	}
}

// info logs a message about the listener itself.
func (r *reporter) info(what string, attrs ...slog.Attr) {
	r.line(slog.LevelInfo, what, attrs...)
}

// debug logs what a loop does.
func (r *reporter) debug(what string, attrs ...slog.Attr) {
	r.line(slog.LevelDebug, what, attrs...)
}

func (r *reporter) line(level slog.Level, what string, attrs ...slog.Attr) {
	r.hooks.Call(loggerHook, func() {
		if ctx := context.Background(); r.logger.Enabled(ctx, level) {
			r.logger.LogAttrs(ctx, level, what, append([]slog.Attr{slog.String("queue", r.queue.String())}, attrs...)...)
		}
	})
}

// maxSuppressedKinds bounds the number of lines about suppressed errors at the end.
const maxSuppressedKinds = 10

// logSuppressed logs the suppressed lines that were not reported yet.
func (r *reporter) logSuppressed() {
	rest := r.limiter.suppressed()
	for _, k := range rest[:min(len(rest), maxSuppressedKinds)] {
		r.info("errors left out of the log", slog.Int("left_out", k.suppressed), slog.String("of", k.message), slog.String("last", k.example))
	}
	more := 0
	for _, k := range rest[min(len(rest), maxSuppressedKinds):] {
		more += k.suppressed
	}
	if more > 0 {
		r.info("errors left out of the log", slog.Int("left_out", more), slog.String("of", "other kinds"))
	}
}
