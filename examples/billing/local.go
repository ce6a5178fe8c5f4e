package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/report"
	"github.com/millrace/millrace/examples/billing/roles"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/meter"
)

const localHelp = `Flags of billing without a command:

` + usageHelp + tariffsHelp + outHelp + `  -price DOLLARS     price of 10,000 requests to queues, to show what a run costs (default 0.01)
  -blob-price DOLLARS  price of 10,000 requests to blobs (default: that of -price)
`

// errStopped is the error of an interrupted program.
var errStopped = errors.New("stopped before everything was billed; nothing is left of it")

// local plays all roles in this process, on queues in this process too. It is a [millrace.Runner].
type local struct {
	usage
	tariffs   tariffsFlag
	out       string
	sla       time.Duration
	price     float64
	blobPrice float64
	show      *progress.Progress
	logger    *slog.Logger
}

func runLocal(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	l := &local{show: progress.New(stdout, stderr)}
	defer l.show.Close()
	l.logger = plainlog.New(l.show)
	if err := l.parse(args); err != nil {
		return err
	}
	return millrace.Run(ctx, l)
}

func (l *local) parse(args []string) error {
	f := cli.NewFlags("billing")
	l.flags(f)
	f.StringVar(&l.tariffs.file, "tariffs", "", "")
	f.StringVar(&l.out, "out", defaultOut, "")
	f.DurationVar(&l.sla, "sla", defaultSLA, "")
	f.Float64Var(&l.price, "price", 0.01, "")
	f.Float64Var(&l.blobPrice, "blob-price", 0, "")
	given, err := cli.ParseFlags(f, args, "tariffs", "out")
	if err != nil {
		return err
	}
	for _, price := range []float64{l.price, l.blobPrice} {
		if !(price >= 0 && price < 1e6) { // not a number too
			return cli.UsageErrorf("%v is not a price in dollars, such as 0.004", price)
		}
	}
	return errors.Join(l.check(given), checkSLA(l.sla))
}

// Halt does nothing: a second signal reaches the roles directly, and every other step ends soon after the first.
func (*local) Halt() {}

// Run bills all records and shows the report in short.
func (l *local) Run(ctx context.Context) error {
	made, err := l.run(ctx)
	l.show.Close()
	if err != nil {
		if ctx.Err() != nil { // errors after the interruption are its consequences
			return errStopped
		}
		return err
	}
	printSummary(l.show.Stdout(), made, l.sla)
	return nil
}

func (l *local) run(ctx context.Context) (_ *report.Summary, err error) {
	tariffs, err := l.tariffs.read(l.show.Say)
	if err != nil {
		return nil, err
	}
	a, err := account.Open(account.Embedded, l.logger)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := program.OpenBlobs(ctx, a, "")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	folder, err := os.MkdirTemp("", "billing-")
	if err != nil {
		return nil, fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	kept, err := books.Open(ctx, filepath.Join(folder, "books.db"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, kept.Close()) }()

	l.show.Say("%s", l.from())
	rejected := &rejections{show: l.show}
	spool, err := consolidate(ctx, &l.usage, filepath.Join(folder, "spool"), l.show, rejected)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, spool.Close()) }()
	r := &localRun{spool: spool, rejected: rejected, tally: newTally(l.show, spool.Records()), logger: l.logger, address: make(chan net.Addr, 1)}
	store := &countingStore{Store: b.Store}
	system, err := newSystem(a, store, &roles.Options{
		Roles: roles.All, Books: kept, Tariffs: tariffs, Source: a.Wakeups(), Idle: a.Idle(), Grace: grace, Logger: l.logger,
		Charged: r.tally.charged, Reported: r.tally.reported,
		Rejected: func(_ string, uncharged []records.Rejection) { rejected.addAll(uncharged) },
	})
	if err != nil {
		return nil, err
	}
	receiver := receiver(store, system, "127.0.0.1:0", l.logger, func(*shipping.Manifest) {}, func(at net.Addr) { r.address <- at })
	if err := millrace.Run(ctx, append(system.Runners(), receiver, r)...); err != nil {
		return nil, err
	}
	if !r.done {
		return nil, errStopped
	}
	return report.Write(ctx, kept, l.out, &report.Options{SLA: l.sla, Requests: &report.Requests{
		Queue: system.Counts().Total().Billed(), Blobs: store.calls.Load(),
		Price: meter.Price{Class1: l.price}, BlobPrice: meter.Price{Class1: l.blobPrice},
	}})
}

// localRun is the premises of a run in one process. It is a [millrace.Runner] that returns when all is in the books, which
// stops the roles.
type localRun struct {
	spool    *shipping.Spool
	rejected *rejections
	tally    *tally
	logger   *slog.Logger
	address  chan net.Addr // of the Initiator
	done     bool          // everything is in the books; set by Run
}

// Run ships all batches and waits until they are in the books.
func (r *localRun) Run(ctx context.Context) error {
	var at net.Addr
	select {
	case at = <-r.address:
	case <-ctx.Done():
		return nil
	}
	c, err := shipping.NewClient("http://"+at.String(), &shipping.ClientOptions{Logger: r.logger})
	if err != nil {
		return err
	}
	shipped := 0
	err = shipAll(ctx, r.spool, c, func(_ *shipping.Batch, _ shipping.State, err error) error {
		shipped++
		return err
	})
	if err == nil {
		err = r.tally.wait(ctx, shipped)
	}
	r.rejected.end(shipped)
	r.done = err == nil
	return err
}

// Halt does nothing: Run returns when its context ends.
func (*localRun) Halt() {}
