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
// of them fails; all of them then drain. A second signal halts them; a third one has
// its usual effect. Run returns when all have returned, with their errors joined. It
// is an error to run nothing.
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
	errs := make([]error, len(rs))
	var running sync.WaitGroup
	for i, r := range rs {
		running.Go(func() {
			defer stop() // one that ended takes the others with it
			errs[i] = r.Run(ctx)
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
		for _, r := range rs {
			r.Halt()
		}
	})
	running.Wait()
	close(done)
	watch.Wait()
	return errors.Join(errs...)
}
