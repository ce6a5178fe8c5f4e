package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling/beacon"
)

const visibilityHelp = `  -visibility TIME   after how long the work of a killed process is taken up by others,
                     at least 5s (default 30s)
`

const initiatorHelp = `Usage: billing initiator [flags]

Splits batches into work items, until Ctrl-C.

Flags:

` + tariffsHelp + accountHelp + blobsHelp + visibilityHelp

const workerHelp = `Usage: billing worker [flags]

Computes the amounts of records, until Ctrl-C. Any number of workers share the work.

Flags:

  -work TIME         how long an item takes beside charging it, as if it asked a tariff service (default 0s)
  -beacon TIME       how often it reports its load in the queue ` + beaconsQueue + `, for an agent
                     (default 0s: never)
` + accountHelp + blobsHelp + visibilityHelp

const controllerHelp = `Usage: billing controller [flags]

Adds up batches and records them in the books, until Ctrl-C. One process is enough.

Flags:

` + booksHelp + accountHelp + blobsHelp + visibilityHelp

// role is a process of one role. It is a [millrace.Runner].
type role struct {
	accountFlags
	name    string
	options options
	tariffs string        // of the initiator
	books   string        // of the controller
	beacon  time.Duration // of the worker
	show    *cli.Show
	logger  *slog.Logger
}

// plays defines the command of a role.
func plays(name string, played roles) define {
	return func(f *flag.FlagSet, show *cli.Show) func(map[string]bool) (millrace.Runner, error) {
		p := &role{name: name, show: show, logger: plainlog.New(show)}
		p.options = options{roles: played, reported: p.reported, logger: p.logger}
		p.accountFlags.flags(f)
		f.DurationVar(&p.options.visibility, "visibility", 30*time.Second, "")
		switch played {
		case initiator:
			f.StringVar(&p.tariffs, "tariffs", "", "")
		case worker:
			f.DurationVar(&p.options.work, "work", 0, "")
			f.DurationVar(&p.beacon, "beacon", 0, "")
		case controller:
			f.StringVar(&p.books, "books", "", "")
		}
		return func(map[string]bool) (millrace.Runner, error) {
			if p.beacon != 0 && (p.beacon < beacon.MinInterval || p.beacon > beacon.MaxInterval) {
				return nil, cli.UsageErrorf("-beacon %v is outside %v…%v", p.beacon, beacon.MinInterval, beacon.MaxInterval)
			}
			return p, errors.Join(checkVisibility(p.options.visibility), checkWork(p.options.work))
		}
	}
}

func checkVisibility(visibility time.Duration) error {
	if visibility < dispatcher.MinVisibility || visibility > time.Hour {
		return cli.UsageErrorf("-visibility %v is outside %v…1h", visibility, dispatcher.MinVisibility)
	}
	return nil
}

// checkWork bounds how long an item takes: 16 of them are charged together.
func checkWork(work time.Duration) error {
	if work < 0 || work > time.Minute {
		return cli.UsageErrorf("-work %v is outside 0s…1m", work)
	}
	return nil
}

// Halt does nothing: a second signal reaches the listeners directly.
func (*role) Halt() {}

// Run works until ctx ends.
func (p *role) Run(ctx context.Context) error {
	err := program.With(ctx, p.account, p.blobs, p.logger, func(a *account.Account, b *account.Blobs) error {
		return p.run(ctx, a, b)
	})
	return cli.UnlessStopped(ctx, err)
}

func (p *role) run(ctx context.Context, a *account.Account, b *account.Blobs) (err error) {
	if _, err := a.Server(ctx); err != nil { // without a server, the error says how to start one
		return err
	}
	if p.options.roles == controller {
		kept, err := openBooks(ctx, p.books, a)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, kept.Close()) }()
		p.options.books = kept
		p.show.Say("controller: books in %s", kept.Address())
	}
	if p.options.tariffs, err = readTariffs(p.tariffs, p.show.Say); err != nil {
		return err
	}
	if p.beacon > 0 {
		control, err := a.Queue(beaconsQueue)
		if err != nil {
			return err
		}
		p.options.beacon = listener.BeaconOptions{Queue: control, Create: true, Interval: p.beacon}
	}
	system, err := systemOn(a, b.Store, p.options)
	if err != nil {
		return err
	}
	p.show.Say("%s: queues at %s, blobs in %s; stop it with Ctrl-C", p.name, a.Endpoint(), b.Here)
	return millrace.Run(ctx, system.runners...)
}

func (p *role) reported(b books.Batch) {
	rejected := ""
	if b.Rejected > 0 {
		rejected = fmt.Sprintf(", %s of them rejected", cli.Grouped(b.Rejected))
	}
	p.show.Say("batch %s: %s%s, in the books %.1f s after it was handed over", b.Name, cli.Plural(int(b.Records), "record"), rejected, b.Latency().Seconds())
}
