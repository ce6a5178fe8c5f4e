package main

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

const cleanHelp = `Usage: mosaic clean [flags]

Removes pictures, slices and records of mosaics that are finished or have failed, and of those
that no message refers to and that are older than an hour, as after kill -9. Mosaics that nobody
has fetched are kept. It may run while others work.

Flags:

  -n                 only say what would be removed
` + workerFlagsHelp

// cleaning is the command clean. It is a [millrace.Runner].
type cleaning struct {
	account account.Flag
	blobs   string
	dry     bool
	show    *display
}

func cleanCommand() cli.Command {
	return cli.Command{Name: "clean", Does: "remove what finished and abandoned mosaics left", Help: cleanHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			c := &cleaning{show: newDisplay(stdout, stderr)}
			f := cli.NewFlags("mosaic clean")
			f.StringVar(&c.account.Given, "account", "", "")
			f.StringVar(&c.blobs, "blobs", "", "")
			f.BoolVar(&c.dry, "n", false, "")
			if _, err := cli.ParseFlags(f, args, "account", "blobs"); err != nil {
				return err
			}
			return millrace.Run(ctx, c)
		}}
}

// Halt does nothing: every step ends soon after the first signal.
func (*cleaning) Halt() {}

// Run cleans up.
func (c *cleaning) Run(ctx context.Context) error {
	err := c.run(ctx)
	if ctx.Err() != nil {
		return errors.New("stopped; what was not removed yet is still there")
	}
	return err
}

func (c *cleaning) run(ctx context.Context) error {
	return mosaicProgram.With(ctx, c.account, c.blobs, plainlog.New(c.show), func(a *account.Account, b *account.Blobs) error {
		if _, err := a.Server(ctx); err != nil { // the messages say what is still used
			return err
		}
		done, err := roles.Clean(ctx, a.Queue, b.Store, c.dry)
		c.print(done, b.Here)
		return err
	})
}

func (c *cleaning) print(done roles.Cleaned, place string) {
	removed := "removed"
	if c.dry {
		removed = "would remove"
	}
	if done.Blobs == 0 {
		c.show.Say("nothing to remove in %s", place)
	} else {
		c.show.Say("%s in %s: %s, %.1f MB, of %s", removed, place, cli.Plural(done.Blobs, "blob"), float64(done.Bytes)/1e6, cli.Plural(done.Requests, "request"))
	}
	for _, kept := range done.Kept {
		c.show.Say("kept %s", kept)
	}
}
