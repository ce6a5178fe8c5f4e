package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/processes"
)

const scaleHelp = `Usage: billing scale [flags]

Shows the agent at work: queues, initiator and controller in this process, and as many billing worker processes as
the agent decides: none at first. All days are shipped at once, workers come, the batches are in the books within the
SLA, and the workers go. Every decision is a line, and a report is written. Ctrl-C ends all of it.

Flags:

` + generatorHelp + `                     (here 300000 records of 6 days, in items of 150 by default)
  -work TIME         how long a worker takes for each item, as if it asked a tariff service (default 300ms)
  -sla TIME          how long a batch may take from being handed over to being in the books (default 1m30s)
  -max N             workers at most (default 6)
` + visibilityHelp + `  -short             end when everything is in the books. Without it, the program waits until the agent
                     has ended the last worker, about a minute later: it averages arrivals over a minute
  -out DIR           the folder of the report (default billing-scale)
`

// scale is the command scale. It is a [millrace.Runner].
type scale struct {
	usage
	max        int
	work, sla  time.Duration
	visibility time.Duration
	out        string
	short      bool // do not wait until the agent has ended all workers
	show       *cli.Show
	logger     *slog.Logger
	begun      time.Time
	workers    *processes.Processes
	stop       context.Context // ends with Halt
	halt       context.CancelFunc

	measurements atomic.Int64
	most         atomic.Int64  // workers at the same time
	measured     chan struct{} // has a value after a measurement
}

func scaleShow(f *flag.FlagSet, show *cli.Show) func(map[string]bool) (millrace.Runner, error) {
	s := &scale{show: show, logger: plainlog.New(show), begun: time.Now(), measured: make(chan struct{}, 1)}
	s.stop, s.halt = context.WithCancel(context.Background())
	s.flags(f)
	return func(given map[string]bool) (millrace.Runner, error) { return s, s.check(given) }
}

func (s *scale) flags(f *flag.FlagSet) {
	s.generatorFlags(f)
	s.days, s.group = 6, 150
	f.IntVar(&s.max, "max", 6, "")
	f.DurationVar(&s.work, "work", 300*time.Millisecond, "")
	f.DurationVar(&s.sla, "sla", 90*time.Second, "")
	f.DurationVar(&s.visibility, "visibility", 30*time.Second, "")
	f.BoolVar(&s.short, "short", false, "")
	f.StringVar(&s.out, "out", "billing-scale", "")
}

func (s *scale) check(given map[string]bool) error {
	if err := errors.Join(s.usage.check(given), checkSLA(s.sla), checkWork(s.work), checkVisibility(s.visibility)); err != nil {
		return err
	}
	if s.max < 1 || s.max > 100 {
		return cli.UsageErrorf("-max %d is outside 1…100", s.max)
	}
	return nil
}

// Halt makes Run end without waiting for workers that finish their items. They have been told to end.
func (s *scale) Halt() { s.halt() }

// Run plays the flood.
func (s *scale) Run(ctx context.Context) error {
	err := onEmbedded(ctx, s.logger, func(at *embedded) error {
		p, err := s.play(ctx, at)
		if err != nil {
			return err
		}
		if !p.done {
			return errStopped
		}
		return s.conclude(ctx, at.books)
	})
	if err != nil && ctx.Err() != nil { // errors after the interruption are its consequences
		return errStopped
	}
	return err
}

// play runs everything until the flood is over and the workers are gone. No worker outlives it.
func (s *scale) play(ctx context.Context, at *embedded) (p *premises, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.workers, err = processes.New(&processes.Options{
		Command: []string{self, "worker", "-work", s.work.String(), "-beacon", "500ms", "-visibility", s.visibility.String(), "-blobs", filepath.Join(at.folder, "blobs")},
		Env:     []string{account.Variable + "=" + at.account.Location(), "GOMAXPROCS=1"}, // the same on every machine
		Folder:  filepath.Join(at.folder, "workers"),
		Grace:   5 * grace,
		Output:  unusual{s.show},
		Logger:  s.logger,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.workers.Drain(s.stop)) }()
	supervisor, err := s.agent(ctx, at.account)
	if err != nil {
		return nil, err
	}
	s.show.Say("%s; a worker takes %v for each item of %s", s.from(), s.work, cli.Plural(s.group, "record"))
	p = newPremises(&s.usage, s.show)
	p.before = func(ctx context.Context) { // the agent has seen twice that there is nothing to do
		_ = s.until(ctx, func() bool { return s.measurements.Load() >= 2 })
	}
	p.after = func(ctx context.Context) error {
		return s.until(ctx, func() bool {
			state := s.workers.State()
			return s.short || state.Wanted == 0 && state.Draining == 0
		})
	}
	p.system, err = systemOn(at.account, at.store, options{
		roles: initiator | controller, books: at.books, logger: s.logger,
		reported: func(b books.Batch) {
			p.reported(b)
			s.show.Say("%s  batch %s is in the books, %.1f s after it was handed over", s.clock(time.Now()), b.Name, b.Latency().Seconds())
		},
	})
	if err != nil {
		return nil, err
	}
	return p, millrace.Run(ctx, append(p.system.runners, supervisor, p)...)
}

// until waits until a condition holds, which is asked after each measurement.
func (s *scale) until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-s.measured:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// clock returns the time since the beginning.
func (s *scale) clock(at time.Time) string { return fmt.Sprintf("%5.1f s", at.Sub(s.begun).Seconds()) }

// unusual shows the lines of workers, except for the first of each.
type unusual struct{ show *cli.Show }

func (u unusual) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "] worker: ") {
			u.show.Say("worker %s", strings.TrimSuffix(line, "\n"))
		}
	}
	return len(text), nil
}

// agent returns the agent that decides how many workers there are.
func (s *scale) agent(ctx context.Context, a *account.Account) (*agent.Agent, error) {
	var queues []queue.Queue
	for _, name := range []string{workQueue, beaconsQueue} {
		q, err := a.Queue(name)
		if err == nil {
			err = q.Create(ctx, nil) // or it is missing until the first batch comes
		}
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	pool := agent.Pool{
		Name: "workers", Queues: queues[:1], Beacons: queues[1:], Actuator: s.workers,
		Policy: s.policy(),
	}
	return agent.New([]agent.Pool{pool}, &agent.Options{Interval: time.Second, Wakeups: a.Wakeups(), Logger: s.logger, OnDecision: s.decided})
}

// policy suits a load that is over within a minute or two: workers start within a second, and are busy for some seconds.
func (s *scale) policy() scaling.Policy {
	return scaling.Policy{
		ToZero: true, Max: s.max, Target: 15 * time.Second, Start: time.Second, DownAfter: 5 * time.Second,
		Slots: workerSlots(1), Handling: collecting + together*s.work,
	}
}

// decided shows a decision if it changes something.
func (s *scale) decided(d agent.Decided) {
	s.measurements.Add(1)
	s.most.Store(max(s.most.Load(), int64(s.workers.State().Running)))
	select {
	case s.measured <- struct{}{}:
	default:
	}
	switch {
	case d.Err != nil:
		s.show.Say("%s  %s, which failed: %v", s.clock(d.Decision.At), d.Decision.Why, d.Err)
	case d.Changes():
		s.show.Say("%s  %s", s.clock(d.Decision.At), d.Decision.Why)
	}
}

// conclude writes the report.
func (s *scale) conclude(ctx context.Context, kept *books.Books) error {
	made, err := writeReport(ctx, kept, s.out, s.sla)
	if err != nil {
		return err
	}
	made.print(s.show.Stdout)
	end := s.workers.State() // after Close
	line(s.show.Stdout, "workers", "0 at first, %d at most, %d at the end; %d ended by themselves, %d were killed", s.most.Load(),
		end.Running+end.Waiting+end.Draining, end.Restarts, end.Killed)
	if made.Late > 0 {
		return fmt.Errorf("%s missed the SLA of %v", cli.Plural(made.Late, "batch"), s.sla)
	}
	return nil
}
