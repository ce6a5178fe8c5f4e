package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
)

const localHelp = `Flags of billing without a command:

` + usageHelp + tariffsHelp + outHelp

// errStopped is the error of an interrupted program.
var errStopped = errors.New("stopped before everything was billed; nothing is left of it")

// embedded is an account in this process, with a temporary store and temporary books.
type embedded struct {
	account *account.Account
	store   blob.Store
	books   *books.Books
	folder  string
}

// onEmbedded runs work on such an account, and removes everything afterwards.
func onEmbedded(ctx context.Context, logger *slog.Logger, work func(*embedded) error) error {
	folder, err := os.MkdirTemp("", "billing-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	err = program.With(ctx, account.Flag{Given: account.Embedded}, filepath.Join(folder, "blobs"), logger, func(a *account.Account, b *account.Blobs) error {
		kept, err := books.Open(ctx, filepath.Join(folder, "books.db"))
		if err != nil {
			return err
		}
		return errors.Join(work(&embedded{a, b.Store, kept, folder}), kept.Close())
	})
	return errors.Join(err, os.RemoveAll(folder))
}

// premises ships all batches, and waits until they are in the books. It is a [millrace.Runner] that returns then, which
// stops the roles.
type premises struct {
	usage  *usage
	system *system
	show   *cli.Show
	before func(context.Context)       // optional
	after  func(context.Context) error // optional

	mu      sync.Mutex
	inBooks map[string]bool // batches; guarded by mu
	changed chan struct{}   // has a value after a batch came into the books

	shipped shipped // set by Run
	done    bool    // everything is in the books; set by Run
}

func newPremises(u *usage, show *cli.Show) *premises {
	return &premises{usage: u, show: show, inBooks: make(map[string]bool), changed: make(chan struct{}, 1)}
}

// reported is called when a batch is in the books, perhaps twice.
func (p *premises) reported(b books.Batch) {
	p.mu.Lock()
	p.inBooks[b.Name] = true
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run ships and waits.
func (p *premises) Run(ctx context.Context) error {
	if p.before != nil {
		p.before(ctx)
	}
	var err error
	if p.shipped, err = p.system.shipAll(ctx, p.usage, p.show, func(*batch, bool) {}); err != nil {
		return err
	}
	for !p.complete() {
		select {
		case <-p.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if p.after != nil {
		err = p.after(ctx)
	}
	p.done = err == nil
	return err
}

func (p *premises) complete() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.shipped.batches {
		if !p.inBooks[name] {
			return false
		}
	}
	return true
}

// Halt does nothing: Run returns when its context ends.
func (*premises) Halt() {}

// local is the program without a command: all roles in this process.
func local(f *flag.FlagSet, show *cli.Show) func(map[string]bool) (millrace.Runner, error) {
	var u usage
	var tariffsFile, out string
	var sla time.Duration
	u.flags(f)
	f.StringVar(&tariffsFile, "tariffs", "", "")
	outFlags(f, &out, &sla)
	logger := plainlog.New(show)
	bill := func(ctx context.Context, s *embedded) error {
		tariffs, err := readTariffs(tariffsFile, show.Say)
		if err != nil {
			return err
		}
		show.Say("%s", u.from())
		p := newPremises(&u, show)
		p.system, err = systemOn(s.account, s.store, options{
			roles: allRoles, books: s.books, tariffs: tariffs, logger: logger,
			reported: func(b books.Batch) {
				show.Say("batch %s: %s, in the books", b.Name, cli.Plural(int(b.Records), "record"))
				p.reported(b)
			},
		})
		if err != nil {
			return err
		}
		if err := millrace.Run(ctx, append(p.system.runners, p)...); err != nil {
			return err
		}
		if !p.done {
			return errStopped
		}
		made, err := writeReport(ctx, s.books, out, sla)
		if err != nil {
			return err
		}
		made.print(show.Stdout)
		line(show.Stdout, "queue requests", "%s; one message a record would take %s", cli.Grouped(p.system.meter.Counts().Total().Billed()), cli.Grouped(naive*made.Records))
		if made.Records > 0 && made.Rejected == made.Records {
			return fmt.Errorf("none of the %s was billed; rejections.csv has each with its reason", cli.Plural(int(made.Records), "line"))
		}
		return nil
	}
	return func(given map[string]bool) (millrace.Runner, error) {
		return cli.Task(func(ctx context.Context) error {
			err := onEmbedded(ctx, logger, func(s *embedded) error { return bill(ctx, s) })
			if ctx.Err() != nil { // errors after the interruption are its consequences
				return errStopped
			}
			return err
		}), errors.Join(u.check(given), checkSLA(sla))
	}
}

// naive is how many requests a record takes if it is a message, and its result another: each is put, received and
// deleted.
const naive = 6
