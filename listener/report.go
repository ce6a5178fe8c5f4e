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

// quiet is how long after a line no other of the same class is logged.
const quiet = 10 * time.Second

// reporter tells the observer of every error and the log of some: a flood of errors
// is not a flood of logs (V-08).
type reporter struct {
	queue   queue.Name
	onError func(error)
	logger  *slog.Logger
	errors  atomic.Int64
	hooks   *hook.Guard // calls onError and logger, and the listener's hooks

	mu      sync.Mutex
	classes map[string]*class // guarded by mu
}

// class is what is known of the errors that are logged alike.
type class struct {
	next       time.Time // when a line may be logged again
	suppressed int       // since the last line
}

func newReporter(q queue.Name, onError func(error), logger *slog.Logger) *reporter {
	r := &reporter{queue: q, onError: onError, logger: logger, classes: make(map[string]*class)}
	r.hooks = hook.New(r.hook)
	return r
}

// poll reports a dequeue or a read of the depth that failed.
func (r *reporter) poll(err error) { r.report(slog.LevelWarn, "poll failed", err) }

// delivery reports what the dispatcher does.
func (r *reporter) delivery(err error) {
	switch e := err.(type) { //nolint:errorlint // the dispatcher tells of these as they are
	case *dispatcher.DeliveryError:
		level := slog.LevelWarn
		switch e.Outcome {
		case dispatcher.Poisoned, dispatcher.Kept, dispatcher.Unsettled:
			level = slog.LevelError
		case dispatcher.Discarded:
			level = slog.LevelInfo
		}
		r.report(level, "delivery "+e.Outcome.String(), err)
	case *dispatcher.HookError:
		r.report(slog.LevelError, "hook "+e.Hook+" failed", err)
	case *dispatcher.StuckError:
		r.report(slog.LevelError, "handler stuck", err)
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

// The hooks that are told of errors. Where one fails the other is told, and never itself.
const (
	onErrorHook = "OnError"
	loggerHook  = "Logger"
)

// hook reports a function of the options that failed.
func (r *reporter) hook(f hook.Failure) {
	err := &dispatcher.HookError{Queue: r.queue, Hook: f.Hook, Value: f.Value, Stack: f.Stack, Times: f.Times}
	switch f.Hook {
	case onErrorHook:
		r.errors.Add(1)
		r.log(slog.LevelError, "hook OnError failed", err)
	case loggerHook:
		r.errors.Add(1)
		hook.Run(func() { r.onError(err) }) // if that fails as well, nobody is left but
		fmt.Fprintf(os.Stderr, "%v\n%s\n", err, err.Stack)
	default:
		r.delivery(err)
	}
}

func (r *reporter) report(level slog.Level, what string, err error) {
	r.errors.Add(1)
	r.hooks.Contain(onErrorHook, func() { r.onError(err) })
	r.log(level, what, err)
}

// log writes a line, unless one of the class was written a moment ago.
func (r *reporter) log(level slog.Level, what string, err error) {
	suppressed, ok := r.admit(what)
	if !ok {
		return
	}
	r.hooks.Contain(loggerHook, func() {
		attrs := []slog.Attr{slog.String("queue", r.queue.String()), slog.Any("error", err)}
		if stack := stackOf(err); stack != nil {
			attrs = append(attrs, slog.String("stack", string(stack)))
		}
		if suppressed > 0 {
			attrs = append(attrs, slog.Int("suppressed", suppressed))
		}
		r.logger.LogAttrs(context.Background(), level, what, attrs...)
	})
}

// stackOf returns the stack of the panic that the error tells of, or nil.
func stackOf(err error) (stack []byte) {
	// What a handler returned may have methods that panic when they are asked for this.
	defer func() { _ = recover() }()
	var panicked *dispatcher.PanicError
	var failed *dispatcher.HookError
	switch {
	case errors.As(err, &failed):
		return failed.Stack
	case errors.As(err, &panicked):
		return panicked.Stack
	}
	return nil
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
