package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/agent/processes"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/report"
	"github.com/millrace/millrace/examples/billing/roles"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

const scaleHelp = `Usage: billing scale [flags]

Shows the agent at work: queues, initiator and controller in this process, and as many billing worker processes as
the agent decides: none at first. All days are shipped at once, workers come, the batches are in the books within the SLA, and
the workers go. Every decision is a line; the page of the report and a picture are written. Ctrl-C ends all of it.

Flags:

  -records N, -days N, -seed N  what is generated: 300000 records of 6 days from seed 1 by default
  -group N           records of a work item at most, 1 to 5000 (default 150)
  -work TIME         how long a worker takes for each item, as if it asked a tariff service (default 120ms)
  -sla TIME          how long a batch may take from being handed over to being in the books (default 45s)
  -target TIME       in what time the agent wants a backlog to be gone (default 5s)
  -down-after TIME   how long fewer workers must have been enough before some go (default 3s)
  -max N             workers at most (default 10)
` + visibilityHelp + `  -short             end when everything is in the books, and not only when the agent has ended the last worker,
                     which is more than a minute later: it averages what comes over a minute
  -out DIR           the folder of the report and of ` + pictureName + ` (default ` + defaultScaleOut + `)
`

const (
	pictureName     = "scale.svg"
	defaultScaleOut = "billing-scale"

	scaleInterval = time.Second            // between measurements, the least that an agent has
	scaleBeacon   = 500 * time.Millisecond // between reports of a worker
	workerStart   = time.Second            // from being asked for to the first job
	workerGrace   = 10 * time.Second       // more than the grace of the program
)

// scale is the command scale. It is a [millrace.Runner].
type scale struct {
	usage
	group, most     int
	work, sla       time.Duration
	target, fewerIn time.Duration
	visibility      time.Duration
	out             string
	short           bool // do not wait until the agent has ended all workers
	show            *progress.Progress
	logger          *slog.Logger
	haltOnce        sync.Once
	halted          chan struct{} // closed by Halt
}

func scaleCommand() cli.Command {
	return cli.Command{Name: "scale", Does: "show how an agent starts and ends workers under a flood", Help: scaleHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			s := &scale{show: progress.New(stdout, stderr), halted: make(chan struct{})}
			defer s.show.Close()
			s.logger = plainlog.New(s.show)
			if err := s.parse(args); err != nil {
				return err
			}
			return millrace.Run(ctx, s)
		}}
}

func (s *scale) flags(f *flag.FlagSet) {
	f.IntVar(&s.records, "records", defaultRecords, "")
	f.IntVar(&s.days, "days", 6, "")
	f.Uint64Var(&s.seed, "seed", defaultSeed, "")
	f.IntVar(&s.group, "group", 150, "")
	f.IntVar(&s.most, "max", 10, "")
	f.DurationVar(&s.work, "work", 120*time.Millisecond, "")
	f.DurationVar(&s.sla, "sla", 45*time.Second, "")
	f.DurationVar(&s.target, "target", 5*time.Second, "")
	f.DurationVar(&s.fewerIn, "down-after", 3*time.Second, "")
	f.DurationVar(&s.visibility, "visibility", 30*time.Second, "")
	f.BoolVar(&s.short, "short", false, "")
	f.StringVar(&s.out, "out", defaultScaleOut, "")
}

func (s *scale) parse(args []string) error {
	f := cli.NewFlags("billing scale")
	s.flags(f)
	given, err := cli.ParseFlags(f, args, "out")
	if err != nil {
		return err
	}
	if err := errors.Join(s.check(given), checkSLA(s.sla), checkWork(s.work)); err != nil {
		return err
	}
	if err := checkVisibility(s.visibility); err != nil {
		return err
	}
	if s.group < 1 || s.group > shipping.MaxPieceRecords {
		return cli.UsageErrorf("-group %d is outside 1…%d", s.group, shipping.MaxPieceRecords)
	}
	if s.most < 1 || s.most > 100 {
		return cli.UsageErrorf("-max %d is outside 1…100", s.most)
	}
	for name, value := range map[string]time.Duration{"target": s.target, "down-after": s.fewerIn} {
		if value <= 0 {
			return cli.UsageErrorf("-%s %v must be positive", name, value)
		}
	}
	return nil
}

// Halt makes Run end without waiting for workers that finish their items. They have been told to end.
func (s *scale) Halt() { s.haltOnce.Do(func() { close(s.halted) }) }

// Run plays the flood.
func (s *scale) Run(ctx context.Context) error {
	err := s.run(ctx)
	s.show.Close()
	if err != nil && ctx.Err() != nil { // errors after the interruption are its consequences
		return errStopped
	}
	return err
}

func (s *scale) run(ctx context.Context) (err error) {
	a, err := account.Open(account.Embedded, s.logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	folder, err := os.MkdirTemp("", "billing-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	b, err := program.OpenBlobs(ctx, a, filepath.Join(folder, "blobs"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	kept, err := books.Open(ctx, filepath.Join(folder, "books.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()

	s.show.Say("%s; a worker takes %v for each item of %s", s.from(), s.work, cli.Plural(s.group, "record"))
	rejected := &rejections{show: s.show}
	spool, err := consolidate(ctx, &s.usage, filepath.Join(folder, "spool"), s.show, rejected)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	flood := &flood{spool: spool, short: s.short, logger: s.logger, address: make(chan net.Addr, 1), tally: newTally(s.show, 0), begun: time.Now()}
	if err := s.play(ctx, a, b, kept, folder, flood); err != nil {
		return err
	}
	return s.conclude(ctx, kept, flood)
}

// play runs everything until the flood is over and the workers are gone. Whatever happens, no worker is left.
func (s *scale) play(ctx context.Context, a *account.Account, b *account.Blobs, kept *books.Books, folder string, flood *flood) (err error) {
	workers, err := s.workers(a, folder)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := s.unlessHalted()
		defer cancel()
		err = errors.Join(err, workers.Close(end, true))
	}()
	flood.workers = workers
	supervisor, err := s.agent(ctx, a, flood)
	if err != nil {
		return err
	}
	system, err := newSystem(a, b.Store, &roles.Options{
		Roles: roles.Initiator | roles.Controller, Books: kept, Group: s.group, Source: a.Wakeups(), Idle: a.Idle(), Grace: grace, Logger: s.logger,
		Reported: func(one books.Batch) {
			flood.tally.reported(one)
			s.show.Say("%s  batch %s is in the books, %.1f s after it was handed over", flood.clock(time.Now()), one.Name, one.Latency().Seconds())
		},
	})
	if err != nil {
		return err
	}
	receiver := receiver(b.Store, system, "127.0.0.1:0", s.logger, func(*shipping.Manifest) {}, func(at net.Addr) { flood.address <- at })
	if err := millrace.Run(ctx, append(system.Runners(), receiver, supervisor, flood)...); err != nil {
		return err
	}
	if !flood.done {
		return errStopped
	}
	return nil
}

// unlessHalted returns a context that ends with Halt.
func (s *scale) unlessHalted() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-s.halted:
			cancel()
		case <-stop:
		}
	})
	return ctx, func() { close(stop); waiting.Wait(); cancel() }
}

// workers returns the processes of billing worker, none at first.
func (s *scale) workers(a *account.Account, folder string) (*processes.Processes, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return processes.New(processes.Options{
		Command: []string{self, "worker", "-work", s.work.String(), "-beacon", scaleBeacon.String(), "-visibility", s.visibility.String(), "-blobs", filepath.Join(folder, "blobs")},
		Env:     []string{account.Variable + "=" + a.Location()},
		Folder:  filepath.Join(folder, "workers"),
		Grace:   workerGrace,
		Output:  unusual{s.show},
		Logger:  s.logger,
	})
}

// unusual shows what workers print, but for what they print always.
type unusual struct{ show *progress.Progress }

func (u unusual) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "] worker: ") && !strings.Contains(line, "] batch ") {
			u.show.Say("worker %s", strings.TrimSuffix(line, "\n"))
		}
	}
	return len(text), nil
}

// agent returns the agent that decides how many workers there are.
func (s *scale) agent(ctx context.Context, a *account.Account, flood *flood) (*agent.Agent, error) {
	var queues []queue.Queue
	for _, name := range []string{roles.WorkQueue, roles.BeaconsQueue} {
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
		Name: "workers", Queues: queues[:1], Beacons: queues[1:], Actuator: flood.workers,
		Policy: scaling.Policy{
			ToZero: true, Max: s.most, Target: s.target, Start: workerStart, DownAfter: s.fewerIn,
			Slots: roles.WorkerSlots(), Handling: roles.WorkerHandling(s.work),
		},
	}
	return agent.New([]agent.Pool{pool}, &agent.Options{
		Interval: scaleInterval, Wakeups: a.Wakeups(), Logger: s.logger,
		OnDecision: func(d agent.Decided) {
			flood.decided(d)
			switch {
			case d.Err != nil:
				s.show.Say("%s  %s, which failed: %v", flood.clock(d.Decision.At), d.Decision.Why, d.Err)
			case d.Changes():
				s.show.Say("%s  %s", flood.clock(d.Decision.At), d.Decision.Why)
			}
		},
	})
}

// conclude writes report and picture, and compares the books with a straight computation.
func (s *scale) conclude(ctx context.Context, kept *books.Books, flood *flood) error {
	tariffs, err := (&tariffsFlag{}).read(s.show.Say)
	if err != nil {
		return err
	}
	want, err := straight(s.generate(s.show), tariffs)
	if err != nil {
		return err
	}
	sums, err := compareTotals(ctx, kept, want)
	if err != nil {
		return fmt.Errorf("the books are wrong: %w", err)
	}
	made, err := report.Write(ctx, kept, s.out, &report.Options{SLA: s.sla})
	if err != nil {
		return err
	}
	var batches []books.Batch
	err = kept.Read(ctx, func(shot *books.Snapshot) error {
		for b, err := range shot.Batches(ctx) {
			if err != nil {
				return err
			}
			batches = append(batches, b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	picture := filepath.Join(s.out, pictureName)
	if err := os.WriteFile(picture, flood.picture(batches, s.sla), 0o644); err != nil {
		return err
	}
	s.show.Close()
	printSummary(s.show.Stdout(), made, s.sla)
	cli.Say(s.show.Stdout(), "  %-22s%s, the same as those of a straight computation, to the cent\n", "totals", cli.Plural(sums, "sum"))
	end := flood.workers.State() // after Close
	cli.Say(s.show.Stdout(), "  %-22s0 at first, %d at most, %d at the end; %d ended by themselves, %d were killed\n", "workers", flood.peak(),
		end.Running+end.Waiting+end.Draining, end.Restarts, end.Killed)
	cli.Say(s.show.Stdout(), "The picture is in %s\n", picture)
	if made.Late > 0 {
		return fmt.Errorf("the SLA of %v was missed by %s", s.sla, cli.Plural(int(made.Late), "batch"))
	}
	return nil
}
