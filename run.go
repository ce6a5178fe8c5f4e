package millrace

import (
	"context"
	"errors"
	"os"
	"os/signal"
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
// of them returns; all of them then drain, at the same time. A second signal halts them;
// a third one has its usual effect. Run returns when all have returned, with their errors
// joined. A runner that panics or calls runtime.Goexit has failed, and the others drain:
// the error has the stack. It is an error to run nothing, and to run nil. The runners see
// the values of ctx. Use [RunOrdered] where one must outlive another.
func Run(ctx context.Context, rs ...Runner) error {
	all, err := together(rs)
	if err != nil {
		return err
	}
	return untilSignalled(ctx, all)
}

// RunOrdered is [Run] with an order to stop in: the last runner drains first, and each one
// before it goes on until all after it have returned. An HTTP server that answers probes
// and shows metrics stays up this way until the listeners have drained:
//
//	millrace.RunOrdered(ctx, millrace.HTTP(server), millrace.Together(orders, emails))
//
// When one of them returns by itself, the others stop in the same order. A second signal
// halts them all.
func RunOrdered(ctx context.Context, rs ...Runner) error {
	stages, err := inOrder(rs)
	if err != nil {
		return err
	}
	return untilSignalled(ctx, stages)
}

// untilSignalled runs r under the signals of the process.
func untilSignalled(ctx context.Context, r composite) error {
	// Room for both signals that count, so that none is missed.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	return run(ctx, signals, func() { signal.Stop(signals) }, r)
}

// run runs r with the signals given, and what to do when no further one counts.
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

// Package os/signal starts its goroutines when it is used for the first time. If that is in a
// testing/synctest bubble they belong to the bubble: the runtime ends the process, or the test
// hangs, and neither says why. So they are started here, that a whole program, [Run] included,
// can be tested in a bubble.
func init() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
}
