package millrace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/internal/hook"
)

// Runner is anything that [Run] can run, such as a listener or a server.
type Runner interface {
	// Run works until ctx ends, then shuts down gracefully and returns nil. It returns early
	// with an error if it cannot work.
	Run(ctx context.Context) error

	// Halt makes Run return as soon as possible. It does not wait, and may be called at any
	// time.
	Halt()
}

// Run runs every runner until ctx ends, the process receives SIGINT or SIGTERM, or one of them
// returns; all of them then drain at the same time. A second signal halts them; a third one has
// its usual effect. Run returns when all have returned, with their errors joined. If a runner
// panics, the others drain, and the error contains the stack. Running nothing, or nil, is an
// error. The runners see the values of ctx. Use [RunOrdered] if one must outlive another.
func Run(ctx context.Context, rs ...Runner) error {
	all, err := together(rs)
	if err != nil {
		return err
	}
	return untilSignalled(ctx, all)
}

// RunOrdered is [Run] with an order of shutdown: the last runner drains first, and each one
// before it continues until all after it have returned. This way an HTTP server that answers
// probes and shows metrics stays up until the listeners have drained:
//
//	millrace.RunOrdered(ctx, millrace.HTTP(server, nil), millrace.Together(orders, emails))
//
// When one of them returns by itself, the others stop in the same order. A second signal halts
// all of them.
func RunOrdered(ctx context.Context, rs ...Runner) error {
	stages, err := inOrder(rs)
	if err != nil {
		return err
	}
	return untilSignalled(ctx, stages)
}

// untilSignalled runs r and handles the signals of the process.
func untilSignalled(ctx context.Context, r composite) error {
	// Buffered for both signals that count, so that none is missed.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return run(ctx, signals, func() { signal.Stop(signals) }, r)
}

// run runs r with the given signals, and calls ignoreSignals when no further signal counts.
func run(ctx context.Context, signals <-chan os.Signal, ignoreSignals func(), r composite) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	var halted error // of Halt; set before watch is done
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-signals:
		case <-done:
			return
		}
		stop()
		select {
		case <-signals:
		case <-done:
			return
		}
		ignoreSignals()
		halted = r.haltAll()
	})
	err := r.Run(ctx)
	close(done)
	watch.Wait()
	return errors.Join(err, halted)
}

// Package os/signal starts its goroutines on first use. If that happens in a testing/synctest
// bubble they belong to the bubble: the runtime ends the process, or the test hangs, without
// saying why. So they are started here, and a whole program, [Run] included, can be tested in a
// bubble.
func init() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
}

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
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	ctx = context.WithValue(ctx, stoppingKey{}, stopping)
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
		stop()
	}
	for i := len(s) - 1; i >= 0; i-- {
		stops[i]()
		<-ended[i]
	}
	running.Wait()
	return errors.Join(errs...)
}

// stoppingKey is the key of the context that ends when the stop of the stages begins. The contexts of
// their runners end later, each in its turn.
type stoppingKey struct{}

// afterStop returns a context that ends this long after the stop begins. Ctx is the context of a
// runner. Cancel it.
func afterStop(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	stopping, ok := ctx.Value(stoppingKey{}).(context.Context)
	if !ok {
		stopping = ctx
	}
	after, end := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(stopping, func() { time.AfterFunc(d, end) })
	return after, end
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
