package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/paired"
)

// worker is a listener with a syphon beside it: receivers have one, senders do not.
type worker struct {
	millrace.Runner
	syphon *paired.Syphon
	ledger *ledger
}

// newWorker returns a worker that looks for diverted orders every five seconds at least. Fifteen minutes,
// the default, cost less, and are too long for a play.
func newWorker(q *paired.Queue, l *ledger, log *slog.Logger) (*worker, error) {
	handle := func(_ context.Context, m *listener.Message[Order]) error {
		l.handled(m.Body.N)
		return nil
	}
	orders := listener.New(q, handle, &listener.Options[Order]{Create: true, Logger: log})
	syphon, err := paired.NewSyphon([]*paired.Queue{q}, &paired.SyphonOptions{MinPoll: 500 * time.Millisecond, MaxPoll: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return &worker{millrace.Together(orders, syphon), syphon, l}, nil
}

// reporter prints a line a second while something happens.
type reporter struct {
	worker *worker
	out    io.Writer
	halted chan struct{}
	once   sync.Once
}

// Run implements millrace.Runner.
func (r *reporter) Run(ctx context.Context) error {
	last := ""
	for every := time.NewTicker(time.Second); ; {
		select {
		case <-every.C:
		case <-ctx.Done():
			every.Stop()
			return nil
		case <-r.halted:
			every.Stop()
			return nil
		}
		line := r.worker.ledger.handledSoFar()
		if s := r.worker.syphon.State(); s.Moved > 0 {
			line += fmt.Sprintf("; %d came home from backlog queues", s.Moved)
		}
		if line != last {
			fmt.Fprintln(r.out, line)
			last = line
		}
	}
}

// Halt implements millrace.Runner.
func (r *reporter) Halt() { r.once.Do(func() { close(r.halted) }) }
