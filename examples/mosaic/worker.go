package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

const workerFlagsHelp = `  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else the server on this machine, which millrace serve starts):
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
  -blobs DIR         where pictures are stored; the same for all processes on the account
                     (default: a folder for the account in your data directory, or the blob
                     service of an account in Azure or Azurite)
`

const controllerHelp = `Usage: mosaic controller [flags]

Chooses the tiles for pictures, requests their slices and composes the mosaics, until Ctrl-C.

Flags:

` + workerFlagsHelp

const processorHelp = `Usage: mosaic processor [flags]

Renders slices, until Ctrl-C. Any number of processors share the work.

Flags:

` + workerFlagsHelp + `  -slices-at-once N  slices rendered at the same time (default: one for each CPU)
  -slow DURATION     how much longer each slice takes, such as 2s, to see a kill heal
`

// worker is a process of one role. It is a [millrace.Runner].
type worker struct {
	role         roles.Roles
	account      account.Flag
	blobs        string
	slicesAtOnce int
	slow         time.Duration
	show         *display
	logger       *slog.Logger
}

func controllerCommand() cli.Command {
	return cli.Command{Name: "controller", Does: "choose tiles and compose mosaics", Help: controllerHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			w := &worker{role: roles.Controller}
			f := cli.NewFlags("mosaic controller")
			f.StringVar(&w.account.Given, "account", "", "")
			f.StringVar(&w.blobs, "blobs", "", "")
			if _, err := cli.ParseFlags(f, args, "account", "blobs"); err != nil {
				return err
			}
			return w.work(ctx, stdout, stderr)
		}}
}

func processorCommand() cli.Command {
	return cli.Command{Name: "processor", Does: "render slices; any number of them may run", Help: processorHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			w := &worker{role: roles.Processor}
			f := cli.NewFlags("mosaic processor")
			f.StringVar(&w.account.Given, "account", "", "")
			f.StringVar(&w.blobs, "blobs", "", "")
			f.IntVar(&w.slicesAtOnce, "slices-at-once", 0, "")
			f.DurationVar(&w.slow, "slow", 0, "")
			untilInputEnds := f.Bool("until-input-ends", false, "") // for mosaic serve, which its processors must not outlive
			given, err := cli.ParseFlags(f, args, "account", "blobs")
			if err != nil {
				return err
			}
			if given["slices-at-once"] && (w.slicesAtOnce < 1 || w.slicesAtOnce > maxSlicesAtOnce) {
				return cli.UsageErrorf("-slices-at-once %d is outside 1…%d", w.slicesAtOnce, maxSlicesAtOnce)
			}
			if w.slow < 0 || w.slow > time.Hour {
				return cli.UsageErrorf("-slow %v is outside 0s…1h", w.slow)
			}
			if *untilInputEnds {
				var cancel context.CancelFunc
				ctx, cancel = context.WithCancel(ctx)
				go func() { // ends with the process: a read of standard input cannot be interrupted
					_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
					cancel()
				}()
			}
			return w.work(ctx, stdout, stderr)
		}}
}

// maxSlicesAtOnce is more than any machine has use for: rendering is work for the CPU.
const maxSlicesAtOnce = 256

// work runs the role until a signal.
func (w *worker) work(ctx context.Context, stdout, stderr io.Writer) error {
	w.show = newDisplay(stdout, stderr)
	w.logger = plainlog.New(w.show)
	return millrace.Run(ctx, w)
}

// Halt does nothing: a second signal reaches the listeners directly.
func (*worker) Halt() {}

// Run works until ctx ends.
func (w *worker) Run(ctx context.Context) error {
	err := w.run(ctx)
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (w *worker) run(ctx context.Context) error {
	return mosaicProgram.With(ctx, w.account, w.blobs, w.logger, func(a *account.Account, b *account.Blobs) error {
		system, err := openRoles(ctx, a, b, roles.Options{Roles: w.role, Processors: w.slicesAtOnce, Slow: w.slow, Handled: w.report, Grace: grace, Logger: w.logger})
		if err != nil {
			return err
		}
		w.show.Say("%v: queues at %s, blobs in %s; stop it with Ctrl-C", w.role, a.Endpoint(), b.Here)
		return millrace.Run(ctx, system.Runners()...)
	})
}

// report shows a step.
func (w *worker) report(s roles.Step) {
	request := s.Request.String()[:8]
	if s.Role == roles.Controller {
		w.show.Say("request %s: %d slices are requested", request, s.Slices)
		return
	}
	w.show.Say("request %s: slice %d of %d is rendered", request, s.Slice+1, s.Slices)
}
