package main

import (
	"context"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

const cleanHelp = `Usage: mosaic clean [flags]

Deletes pictures, slices, tiles and records that are older than a day, as a client leaves them that
was killed. It also deletes mosaics that nobody has fetched for so long, and what a redrive of
older poison would need. It may run while others work.

Flags:

` + workerFlagsHelp

func runClean(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var at account.Flag
	f := cli.NewFlags("mosaic clean")
	f.StringVar(&at.Given, "account", "", "")
	folder := f.String("blobs", "", "")
	if _, err := cli.ParseFlags(f, args, "account", "blobs"); err != nil {
		return err
	}
	show := progress.New(stdout, stderr)
	return millrace.Run(ctx, task(func(ctx context.Context) error {
		return mosaicProgram.With(ctx, at, *folder, plainlog.New(show), func(_ *account.Account, b *account.Blobs) error {
			blobs, bytes, err := roles.Clean(ctx, b.Store)
			show.Say("deleted in %s: %s, %.1f MB", b.Here, cli.Plural(blobs, "blob"), float64(bytes)/1e6)
			return err
		})
	}))
}
