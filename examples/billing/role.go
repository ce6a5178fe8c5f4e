package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/beacon"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/roles"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
)

const visibilityHelp = `  -visibility TIME   after how long the work of a process that was killed is taken up by others,
                     at least 5s (default 30s)
`

const initiatorHelp = `Usage: billing initiator [flags]

Receives batches from billing ship and splits them into work items, until Ctrl-C.

Flags:

  -addr HOST:PORT    where batches are received (default ` + defaultAddr + `; port 0 is any free one);
                     there is no password, so another address than 127.0.0.1 lets others send batches
` + tariffsHelp + `  -group N           records of a work item at most, 1 to 5000 (default 1000)
` + accountHelp + blobsHelp + visibilityHelp

const workerHelp = `Usage: billing worker [flags]

Computes what records cost, until Ctrl-C. Any number of workers share the work.

Flags:

  -work TIME         how long it takes for each item beside charging it, as if it asked a tariff service (default 0s)
  -beacon TIME       how often it reports in the queue ` + roles.BeaconsQueue + ` how busy it is, for an agent
                     (default 0s: it does not)
` + accountHelp + blobsHelp + visibilityHelp

const controllerHelp = `Usage: billing controller [flags]

Adds up batches and records them in the books, until Ctrl-C. One process is enough.

Flags:

` + booksHelp + accountHelp + blobsHelp + visibilityHelp

// defaultAddr is where batches are received.
const defaultAddr = "127.0.0.1:8070"

// role is a process of one role. It is a [millrace.Runner].
type role struct {
	accountFlags
	role       roles.Roles
	visibility time.Duration
	addr       string        // of the Initiator
	tariffs    tariffsFlag   // of the Initiator
	group      int           // of the Initiator
	books      string        // of the Controller
	work       time.Duration // of the Worker
	beacon     time.Duration // of the Worker
	show       *progress.Progress
	logger     *slog.Logger
}

// roleCommand returns the command of a role. The flags are those that other roles do not have.
func roleCommand(played roles.Roles, does, help string, flags func(*role, *flag.FlagSet)) cli.Command {
	name := played.String()
	return cli.Command{Name: name, Does: does, Help: help,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			r := &role{role: played, show: progress.New(stdout, stderr)}
			defer r.show.Close()
			r.logger = plainlog.New(r.show)
			f := cli.NewFlags("billing " + name)
			r.accountFlags.flags(f)
			f.DurationVar(&r.visibility, "visibility", 30*time.Second, "")
			flags(r, f)
			notEmpty := []string{"account", "blobs"}
			for _, name := range []string{"addr", "tariffs", "books"} {
				if f.Lookup(name) != nil {
					notEmpty = append(notEmpty, name)
				}
			}
			if _, err := cli.ParseFlags(f, args, notEmpty...); err != nil {
				return err
			}
			if err := errors.Join(checkVisibility(r.visibility), r.checkWorker()); err != nil {
				return err
			}
			return millrace.Run(ctx, r)
		}}
}

func checkVisibility(visibility time.Duration) error {
	if visibility < dispatcher.MinVisibility || visibility > time.Hour {
		return cli.UsageErrorf("-visibility %v is outside %v…1h", visibility, dispatcher.MinVisibility)
	}
	return nil
}

// checkWorker refuses flags of a Worker that make no sense. Those of other roles are zero.
func (r *role) checkWorker() error {
	if err := checkWork(r.work); err != nil {
		return err
	}
	if r.beacon != 0 && (r.beacon < beacon.MinInterval || r.beacon > beacon.MaxInterval) {
		return cli.UsageErrorf("-beacon %v is outside %v…%v", r.beacon, beacon.MinInterval, beacon.MaxInterval)
	}
	return nil
}

// maxWork is how long an item may take: 16 of them are charged together.
const maxWork = time.Minute

func checkWork(work time.Duration) error {
	if work < 0 || work > maxWork {
		return cli.UsageErrorf("-work %v is outside 0s…%v", work, maxWork)
	}
	return nil
}

func initiatorCommand() cli.Command {
	return roleCommand(roles.Initiator, "receive batches and split them", initiatorHelp, func(r *role, f *flag.FlagSet) {
		f.StringVar(&r.addr, "addr", defaultAddr, "")
		f.StringVar(&r.tariffs.file, "tariffs", "", "")
		f.IntVar(&r.group, "group", roles.DefaultGroup, "")
	})
}

func workerCommand() cli.Command {
	return roleCommand(roles.Worker, "compute what records cost; any number of them may run", workerHelp, func(r *role, f *flag.FlagSet) {
		f.DurationVar(&r.work, "work", 0, "")
		f.DurationVar(&r.beacon, "beacon", 0, "")
	})
}

func controllerCommand() cli.Command {
	return roleCommand(roles.Controller, "add up batches and record them in the books", controllerHelp, func(r *role, f *flag.FlagSet) {
		f.StringVar(&r.books, "books", "", "")
	})
}

// Halt does nothing: a second signal reaches the listeners directly.
func (*role) Halt() {}

// Run works until ctx ends.
func (r *role) Run(ctx context.Context) error {
	err := program.With(ctx, r.account, r.blobs, r.logger, func(a *account.Account, b *account.Blobs) error {
		return r.run(ctx, a, b)
	})
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (r *role) run(ctx context.Context, a *account.Account, b *account.Blobs) (err error) {
	if _, err := a.Server(ctx); err != nil { // says what to do if there is none
		return err
	}
	options := roles.Options{
		Roles: r.role, Source: a.Wakeups(), Idle: a.Idle(), Visibility: r.visibility, Grace: grace, Logger: r.logger,
		Reported: r.reported, Rejected: r.rejected,
	}
	if r.role == roles.Controller {
		kept, err := openBooks(ctx, r.books, a)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, kept.Close()) }()
		options.Books = kept
		r.show.Say("controller: books in %s", kept.Address())
	}
	if r.role == roles.Initiator {
		if options.Tariffs, err = r.tariffs.read(r.show.Say); err != nil {
			return err
		}
		options.Group = r.group
	}
	options.Work = r.work
	if r.beacon > 0 {
		control, err := a.Queue(roles.BeaconsQueue)
		if err != nil {
			return err
		}
		options.Beacon = beacon.Options{Queue: control, Create: true, Interval: r.beacon}
	}
	work := &workShown{show: r.show}
	options.Charged = work.charged
	system, err := newSystem(a, b.Store, &options)
	if err != nil {
		return err
	}
	runners := system.Runners()
	switch r.role {
	case roles.Initiator:
		runners = append(runners, receiver(b.Store, system, r.addr, r.logger, r.received, func(address net.Addr) {
			r.show.Say("initiator: batches at http://%v", address)
		}))
	case roles.Worker:
		runners = append(runners, work)
	}
	r.show.Say("%v: queues at %s, blobs in %s; stop it with Ctrl-C", r.role, a.Endpoint(), b.Here)
	return millrace.Run(ctx, runners...)
}

// newSystem plays roles on an account.
func newSystem(a *account.Account, store blob.Store, o *roles.Options) (*roles.System, error) {
	queues, err := a.Queues()
	if err != nil {
		return nil, err
	}
	return roles.New(queues, store, o)
}

// receiver receives batches over HTTP. It calls listening with the address when it listens.
func receiver(store blob.Store, system *roles.System, addr string, logger *slog.Logger, received func(*shipping.Manifest), listening func(net.Addr)) millrace.Runner {
	server := shipping.NewServer(store, func(ctx context.Context, m shipping.Manifest) error {
		err := system.Submit(ctx, m.Batch)
		if err == nil {
			received(&m)
		}
		return err
	}, &shipping.ServerOptions{Reported: system.Reported, Logger: logger})
	s := server.HTTPServer(addr)
	s.BaseContext = func(l net.Listener) context.Context {
		listening(l.Addr())
		return context.Background() // requests in flight may finish
	}
	return millrace.HTTP(s)
}

// received shows a batch.
func (r *role) received(m *shipping.Manifest) {
	r.show.Say("batch %s: %s in %s, all of them received", m.Batch, cli.Plural(m.Records(), "record"), cli.Plural(len(m.Pieces), "piece"))
}

// rejected shows the first records of a batch that could not be charged.
func (r *role) rejected(_ string, uncharged []records.Rejection) {
	shown := &rejections{show: r.show}
	shown.addAll(uncharged)
	shown.end(1)
}

// reported shows a batch.
func (r *role) reported(b books.Batch) {
	rejected := ""
	if b.Rejected > 0 {
		rejected = fmt.Sprintf(", %s of them rejected", cli.Grouped(b.Rejected))
	}
	r.show.Say("batch %s: %s%s, in the books %.1f s after it was handed over", b.Name, cli.Plural(int(b.Records), "record"), rejected, b.Latency().Seconds())
}
