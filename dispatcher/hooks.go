package dispatcher

import (
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// HookError reports a panic, or a call of runtime.Goexit, in a function of the Options. The
// dispatcher continues with the default of that function, and no message is lost. It is passed
// to Options.OnError at once, and then at most every ten seconds per hook. A hook that ends its
// goroutine, as t.FailNow does, ends only its own call.
type HookError struct {
	Queue   queue.Name
	Hook    string    // the field of the options, such as "Observer.Started" or "Codec.Decode"
	Value   any       // what was passed to panic; nil if it called runtime.Goexit
	Stack   []byte    // the goroutine's stack at that point
	Callers []uintptr // the same for runtime.CallersFrames; at most 64
	Times   int       // failures since the last report, this one included; at least 1
}

// Error describes the failure in one line, without the stack.
func (e *HookError) Error() string {
	what := "called runtime.Goexit"
	if e.Value != nil {
		what = fmt.Sprintf("panicked: %v", e.Value)
	}
	if e.Times > 1 {
		what += fmt.Sprintf(" (%d times since the last report)", e.Times)
	}
	return fmt.Sprintf("hook %s of %v %s", e.Hook, e.Queue, what)
}

func newHookError(of queue.Name, f hook.Failure) *HookError {
	return &HookError{Queue: of, Hook: f.Hook, Value: f.Value, Stack: f.Stack, Callers: f.Callers, Times: f.Times}
}

// onError is the name of the hook that receives the failures of the others.
const onError = "OnError"

// guard wraps the hooks so that their panics are contained. Hooks that are called for every
// message run on its goroutine, which runtime.Goexit can end, so what follows them is deferred.
// The others get a goroutine per call, which costs little next to what they do. Codec and
// RetryDelay are guarded where their results are used.
func (o *Options) guard(of queue.Name) *hook.Guard {
	report := o.OnError
	g := hook.New(func(f hook.Failure) {
		err := newHookError(of, f)
		if f.Hook == onError {
			logHookError(err)
			return
		}
		o.OnError(err)
	})
	o.OnError = func(err error) { g.Contain(onError, func() { report(err) }) }
	if f := o.OnWait; f != nil {
		o.OnWait = func(mayOpen bool) { g.Contain("OnWait", func() { f(mayOpen) }) }
	}
	if f := o.OnRelease; f != nil {
		o.OnRelease = func(due time.Time) { g.Contain("OnRelease", func() { f(due) }) }
	}
	o.Observer.guard(g)
	return g
}

func (o *Observer) guard(g *hook.Guard) {
	if f := o.Started; f != nil {
		o.Started = func(d Delivery) { g.Call("Observer.Started", func() { f(d) }) }
	}
	if f := o.Finished; f != nil {
		o.Finished = func(d Delivery, took time.Duration, err error) {
			g.Call("Observer.Finished", func() { f(d, took, err) })
		}
	}
	if f := o.Settled; f != nil {
		o.Settled = func(d Delivery, outcome Outcome, took time.Duration) {
			g.Call("Observer.Settled", func() { f(d, outcome, took) })
		}
	}
	if f := o.Renewed; f != nil {
		o.Renewed = func(d Delivery, visibility time.Duration, err error) {
			g.Contain("Observer.Renewed", func() { f(d, visibility, err) })
		}
	}
	if f := o.Lost; f != nil {
		o.Lost = func(d Delivery, cause error) { g.Contain("Observer.Lost", func() { f(d, cause) }) }
	}
	if f := o.Poisoned; f != nil {
		o.Poisoned = func(d Delivery, reason poison.Reason, err error) {
			g.Contain("Observer.Poisoned", func() { f(d, reason, err) })
		}
	}
}

// logHookError logs a failure of OnError itself. Under a listener it is not reached: the
// listener has its own log.
func logHookError(err *HookError) {
	if hook.Run(func() { slog.Error("hook failed", slog.Any("error", err), slog.String("stack", string(err.Stack))) }) != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s\n", err, err.Stack)
	}
}
