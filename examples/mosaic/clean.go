package main

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

const cleanHelp = `Usage: mosaic clean [flags]

Removes pictures, slices and records of mosaics that are finished or have failed, and of those
that no message refers to and that are older than an hour, as after kill -9. Mosaics that nobody
has fetched are kept. It may run while others work.

Flags:

  -n                 only say what would be removed
` + workerFlagsHelp

func runClean(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var at account.Flag
	f := cli.NewFlags("mosaic clean")
	f.StringVar(&at.Given, "account", "", "")
	blobs := f.String("blobs", "", "")
	dry := f.Bool("n", false, "")
	if _, err := cli.ParseFlags(f, args, "account", "blobs"); err != nil {
		return err
	}
	show := progress.New(stdout, stderr)
	return millrace.Run(ctx, task(func(ctx context.Context) error {
		err := mosaicProgram.With(ctx, at, *blobs, plainlog.New(show), func(a *account.Account, b *account.Blobs) error {
			if _, err := a.Server(ctx); err != nil { // the messages say what is still used
				return err
			}
			done, err := roles.Clean(ctx, a.Queue, b.Store, *dry)
			removed := "removed"
			if *dry {
				removed = "would remove"
			}
			show.Say("%s in %s: %s, %.1f MB, of %s", removed, b.Here, cli.Plural(done.Blobs, "blob"), float64(done.Bytes)/1e6, cli.Plural(done.Requests, "request"))
			for _, kept := range done.Kept {
				show.Say("kept %s", kept)
			}
			return err
		})
		if ctx.Err() != nil {
			return errors.New("stopped; what was not removed yet is still there")
		}
		return err
	}))
}
