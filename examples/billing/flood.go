package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/agent/processes"
	"github.com/millrace/millrace/examples/billing/shipping"
)

// flood ships all batches at once, waits until they are in the books and the workers are gone, and keeps what was measured meanwhile. It is
// a [millrace.Runner] that returns then, which stops the others.
type flood struct {
	spool   *shipping.Spool
	workers *processes.Processes
	tally   *tally
	logger  *slog.Logger
	address chan net.Addr // of the Initiator
	begun   time.Time
	short   bool // do not wait until the workers are gone

	done bool // set by Run

	mu       sync.Mutex
	moments  []moment      // guarded by mu
	measured chan struct{} // closed at the second measurement, made by Run; guarded by mu
}

// moment is what was measured at one time.
type moment struct {
	agent.Decided
	workers processes.State
}

// clock returns the time since the beginning.
func (f *flood) clock(at time.Time) string { return fmt.Sprintf("%5.1f s", at.Sub(f.begun).Seconds()) }

// decided keeps a decision.
func (f *flood) decided(d agent.Decided) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.moments = append(f.moments, moment{d, f.workers.State()})
	if len(f.moments) >= 2 && f.measured != nil {
		close(f.measured)
		f.measured = nil
	}
}

// quiet waits until the agent has seen that there is nothing to do.
func (f *flood) quiet(ctx context.Context) {
	measured := make(chan struct{})
	f.mu.Lock()
	if len(f.moments) < 2 {
		f.measured = measured
	} else {
		close(measured)
	}
	f.mu.Unlock()
	select {
	case <-measured:
	case <-ctx.Done():
	}
}

// gone waits until there is no worker.
func (f *flood) gone(ctx context.Context) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		if s := f.workers.State(); s.Wanted == 0 && s.Draining == 0 {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Run plays the flood.
func (f *flood) Run(ctx context.Context) error {
	f.quiet(ctx)
	var at net.Addr
	select {
	case at = <-f.address:
	case <-ctx.Done():
		return nil
	}
	c, err := shipping.NewClient("http://"+at.String(), &shipping.ClientOptions{Logger: f.logger})
	if err != nil {
		return err
	}
	shipped := 0
	err = shipAll(ctx, f.spool, c, func(_ *shipping.Batch, _ shipping.State, err error) error {
		shipped++
		return err
	})
	if err == nil {
		err = f.tally.wait(ctx, shipped)
	}
	if err == nil && !f.short {
		err = f.gone(ctx)
	}
	f.done = err == nil
	return err
}

// Halt does nothing: Run returns when its context ends.
func (*flood) Halt() {}

// peak returns how many workers there were at most.
func (f *flood) peak() (most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.moments {
		most = max(most, m.workers.Running)
	}
	return most
}
