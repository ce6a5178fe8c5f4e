package millrace

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"github.com/millrace/millrace/internal/hook"
)

// composite is a runner of runners.
type composite interface {
	Runner
	haltAll() error // Halt, with errors
}

// Together returns a runner that runs all of these at once and returns when all have returned:
// one place in the order of [RunOrdered]. When one returns, the others stop. Run returns their
// errors joined, and an error if there are none or one is nil.
func Together(rs ...Runner) Runner {
	all, err := together(rs)
	if err != nil {
		return invalidRunner{err}
	}
	return all
}

func together(rs []Runner) (group, error) { return rs, check(rs) }

// group is a set of runners that start and stop together.
type group []Runner

// Run runs all of them.
func (g group) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, len(g))
	var running sync.WaitGroup
	for i, r := range g {
		running.Go(func() {
			defer stop() // one that returns stops the others
			errs[i] = callRunner("Run", r, func() error { return r.Run(ctx) })
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// Halt halts all of them.
func (g group) Halt() { _ = g.haltAll() }

func (g group) haltAll() error {
	errs := make([]error, len(g))
	var halting sync.WaitGroup
	for i, r := range g {
		// Concurrently, so that one that blocks does not keep the others from being halted.
		halting.Go(func() {
			if all, ok := r.(composite); ok {
				errs[i] = all.haltAll()
				return
			}
			errs[i] = callRunner("Halt", r, func() error { r.Halt(); return nil })
		})
	}
	halting.Wait()
	return errors.Join(errs...)
}

func inOrder(rs []Runner) (stages, error) { return rs, check(rs) }

// stages is a list of runners that start together and stop one after the other, the last one
// first.
type stages []Runner

// Run runs all of them.
func (s stages) Run(ctx context.Context) error {
	errs := make([]error, len(s))
	stops := make([]context.CancelFunc, len(s))
	ended := make([]chan struct{}, len(s))
	first := make(chan struct{}, len(s)) // receives when a runner has returned
	var running sync.WaitGroup
	for i, r := range s {
		// Not cancelled with ctx: each is stopped in its turn.
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		stops[i], ended[i] = stop, make(chan struct{})
		running.Go(func() {
			errs[i] = callRunner("Run", r, func() error { return r.Run(own) })
			first <- struct{}{}
			close(ended[i])
		})
	}
	select {
	case <-ctx.Done():
	case <-first:
	}
	for i := len(s) - 1; i >= 0; i-- {
		stops[i]()
		<-ended[i]
	}
	running.Wait()
	return errors.Join(errs...)
}

// Halt halts all of them, which also ends the waits between them.
func (s stages) Halt() { _ = s.haltAll() }

func (s stages) haltAll() error { return group(s).haltAll() }

// check returns an error for runners that cannot be run, before any is started.
func check(rs []Runner) error {
	if len(rs) == 0 {
		return errors.New("millrace: nothing to run")
	}
	for i, r := range rs {
		if hook.IsNil(r) {
			return fmt.Errorf("millrace: runner %d of %d is nil", i+1, len(rs))
		}
	}
	return nil
}

// invalidRunner is a runner that fails with the given error.
type invalidRunner struct{ err error }

// Run returns the error.
func (r invalidRunner) Run(context.Context) error { return r.err }

// Halt does nothing.
func (r invalidRunner) Halt() {}

// callRunner calls a method of a runner. A panic becomes an error, so that the others drain.
func callRunner(method string, r Runner, call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("millrace: %s of %T panicked: %v\n%s", method, r, p, debug.Stack())
		}
	}()
	return call()
}
