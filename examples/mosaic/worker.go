package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

const workerFlagsHelp = `  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else the server on this machine, which millrace serve starts):
` + locationHelp + blobsHelp

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

// runWorker returns a command that plays one role until a signal.
func runWorker(name string, role roles.Roles) func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		show := cli.NewShow(stdout, stderr)
		logger := plainlog.New(show)
		o := roles.Options{Roles: role, Logger: logger, Handled: func(s roles.Step) {
			request := s.Request.String()[:8]
			if role == roles.Controller {
				show.Say("request %s: %d slices are requested", request, s.Slices)
			} else {
				show.Say("request %s: slice %d of %d is rendered", request, s.Slice+1, s.Slices)
			}
		}}
		var at account.Flag
		f := cli.NewFlags("mosaic " + name)
		f.StringVar(&at.Given, "account", "", "")
		blobs := f.String("blobs", "", "")
		untilInputEnds := false // for mosaic serve, which its processors must not outlive
		if role == roles.Processor {
			f.IntVar(&o.Processors, "slices-at-once", runtime.GOMAXPROCS(0), "")
			f.DurationVar(&o.Slow, "slow", 0, "")
			f.BoolVar(&untilInputEnds, "until-input-ends", false, "")
		}
		if _, err := cli.ParseFlags(f, args, "account", "blobs"); err != nil {
			return err
		}
		if role == roles.Processor && (o.Processors < 1 || o.Processors > 256) {
			return cli.UsageErrorf("-slices-at-once %d is outside 1…256", o.Processors)
		}
		if o.Slow < 0 || o.Slow > time.Hour {
			return cli.UsageErrorf("-slow %v is outside 0s…1h", o.Slow)
		}
		if untilInputEnds {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			go func() { // ends with the process: a read of standard input cannot be interrupted
				_, _ = io.Copy(io.Discard, os.Stdin) // an error is an end too
				cancel()
			}()
		}
		return millrace.Run(ctx, cli.Task(func(ctx context.Context) error {
			err := mosaicProgram.With(ctx, at, *blobs, logger, func(a *account.Account, b *account.Blobs) error {
				system, err := openRoles(ctx, a, b, o)
				if err != nil {
					return err
				}
				show.Say("%s: queues at %s, blobs in %s; stop it with Ctrl-C", name, a.Endpoint(), b.Here)
				return millrace.Run(ctx, system.Runners()...)
			})
			return cli.UnlessStopped(ctx, err)
		}))
	}
}
