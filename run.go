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
)

// Runner is what [Run] runs: a listener, or anything that runs until its context
// ends and can be told to hurry.
type Runner interface {
	// Run works until ctx ends, then finishes in good order and returns nil. It
	// returns early with an error if it cannot work.
	Run(ctx context.Context) error

	// Halt makes Run return as soon as it can. It does not wait, and may be called
	// at any time.
	Halt()
}

// Run runs every runner until ctx ends, the process gets SIGINT or SIGTERM, or one
// of them fails; all of them then drain. A second signal halts them; a third one has
// its usual effect. Run returns when all have returned, with their errors joined. A
// runner that panics or calls runtime.Goexit has failed, and the others drain: the error
// has the stack. It is an error to run nothing.
func Run(ctx context.Context, rs ...Runner) error {
	if len(rs) == 0 {
		return errors.New("millrace: nothing to run")
	}
	// Room for both signals that count, so that none is missed.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return run(ctx, signals, func() { signal.Stop(signals) }, rs)
}

// run is Run with the signals given, and what to do when no further one counts.
func run(ctx context.Context, signals <-chan os.Signal, enough func(), rs []Runner) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make([]error, 2*len(rs)) // of Run and of Halt
	var running sync.WaitGroup
	for i, r := range rs {
		running.Go(func() {
			defer stop() // one that ended takes the others with it
			attempt(&errs[i], "Run", r, func() error { return r.Run(ctx) })
		})
	}
	done := make(chan struct{})
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
		enough()
		for i, r := range rs {
			// Each on its own: none keeps the others from being halted.
			watch.Go(func() {
				attempt(&errs[len(rs)+i], "Halt", r, func() error { r.Halt(); return nil })
			})
		}
	})
	running.Wait()
	close(done)
	watch.Wait()
	return errors.Join(errs...)
}

// attempt calls a method of a runner. A panic or runtime.Goexit in it is an error, so that
// the others drain.
func attempt(err *error, method string, r Runner, call func() error) {
	returned := false
	defer func() {
		if p := recover(); p != nil {
			*err = fmt.Errorf("millrace: %s of %T panicked: %v\n%s", method, r, p, debug.Stack())
		} else if !returned {
			*err = fmt.Errorf("millrace: %s of %T called runtime.Goexit\n%s", method, r, debug.Stack())
		}
	}()
	*err = call()
	returned = true
}
