package dispatcher

import (
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// HookError reports a panic in a function of the Options. The dispatcher continues with the
// default of that function, and no message is lost. It is passed to Options.OnError immediately,
// and then at most every ten seconds per hook.
type HookError struct {
	Queue   queue.Name
	Hook    string    // the field of the options, such as "Observer.Started" or "Codec.Decode"
	Value   any       // passed to panic
	Stack   []byte    // the goroutine's stack at that point
	Callers []uintptr // the same for runtime.CallersFrames; at most 64
	Times   int       // failures since the last report, this one included; at least 1
}

// Error describes the failure in one line, without the stack.
func (e *HookError) Error() string {
	what := fmt.Sprintf("panicked: %v", e.Value)
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

// guard contains the panics of the hooks. Those with a result are guarded where it is used.
func (o *Options) guard(of queue.Name) *hook.Guard {
	g := hook.New(func(f hook.Failure) {
		err := newHookError(of, f)
		if f.Hook == onError {
			slog.Error("hook failed", slog.Any("error", err), slog.String("stack", string(err.Stack)))
			return
		}
		o.OnError(err)
	})
	o.OnError = hook.Guard1(g, onError, o.OnError)
	o.OnWait = hook.Guard1(g, "OnWait", o.OnWait)
	o.OnRelease = hook.Guard1(g, "OnRelease", o.OnRelease)
	w := &o.Observer
	w.Started = hook.Guard1(g, "Observer.Started", w.Started)
	w.Finished = hook.Guard3(g, "Observer.Finished", w.Finished)
	w.Settled = hook.Guard3(g, "Observer.Settled", w.Settled)
	w.Renewed = hook.Guard3(g, "Observer.Renewed", w.Renewed)
	w.Lost = hook.Guard2(g, "Observer.Lost", w.Lost)
	w.Poisoned = hook.Guard3(g, "Observer.Poisoned", w.Poisoned)
	return g
}
