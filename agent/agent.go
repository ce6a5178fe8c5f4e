package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/millrace/millrace/internal/hook"
)

// Agent scales pools. Make one with [New]. It is safe for concurrent use.
type Agent struct {
	options Options
	pools   []*pool
	hooks   *hook.Guard

	halt     chan struct{} // closed by Halt
	haltOnce sync.Once

	mu      sync.Mutex
	started bool // guarded by mu
}

// New returns an agent, or everything that is wrong with the pools and options. It sends no request and opens no file.
func New(pools []Pool, o *Options) (*Agent, error) {
	options, problems := o.withDefaults()
	problems = append(problems, check(pools)...)
	if len(problems) > 0 {
		return nil, fmt.Errorf("agent: %w", errors.Join(problems...))
	}
	a := &Agent{options: options, halt: make(chan struct{})}
	a.hooks = hook.New(func(f hook.Failure) {
		options.Logger.Error("a hook of the agent failed", "hook", f.Hook, "panic", f.Value, "times", f.Times, "stack", string(f.Stack))
	})
	for _, p := range pools {
		a.pools = append(a.pools, newPool(a, p))
	}
	return a, nil
}

// Run measures and decides until ctx ends, and then returns nil. Each pool is measured at once, and then each Interval, by a
// goroutine of its own. At the stop the history is kept, and a call of an actuator that runs has 5 s to end.
// Instances go on running.
//
// Run returns early with an error if Folder cannot be used, or if another agent uses it for one of the pools. An agent runs once.
func (a *Agent) Run(ctx context.Context) error {
	a.mu.Lock()
	started := a.started
	a.started = true
	a.mu.Unlock()
	if started {
		return errors.New("agent: Run was called before: make another agent")
	}
	for _, p := range a.pools {
		if err := p.open(); err != nil {
			a.close()
			return fmt.Errorf("agent: %w", err)
		}
	}
	defer a.close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var halting, running sync.WaitGroup
	halting.Go(func() {
		select {
		case <-a.halt:
			stop()
		case <-ctx.Done():
		}
	})
	for _, p := range a.pools {
		running.Go(func() { p.run(ctx) })
	}
	running.Wait()
	stop()
	halting.Wait()
	return a.leave()
}

// leave waits for calls that hang, for stopGrace at most or until a halt, and returns an error for each that is left behind.
func (a *Agent) leave() error {
	end, enough := context.WithTimeout(context.Background(), stopGrace)
	defer enough()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-a.halt:
			enough()
		case <-end.Done():
		}
	})
	var left []error
	for _, p := range a.pools {
		left = append(left, p.left(end.Done())...)
	}
	enough()
	waiting.Wait()
	return errors.Join(left...)
}

// Halt makes Run return without waiting for a call of an actuator that runs. It does not wait, and may be called at any time.
func (a *Agent) Halt() { a.haltOnce.Do(func() { close(a.halt) }) }

// close releases what open has taken.
func (a *Agent) close() {
	for _, p := range a.pools {
		p.close()
	}
}

func (a *Agent) report(e *Error) {
	if f := a.options.OnError; f != nil {
		a.hooks.Call("OnError", func() { f(e) })
	}
}

func (a *Agent) logger(pool string) *slog.Logger { return a.options.Logger.With("pool", pool) }
