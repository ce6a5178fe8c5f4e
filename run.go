package millrace

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
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
//	millrace.RunOrdered(ctx, millrace.HTTP(server), millrace.Together(orders, emails))
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
