package main

import (
	"context"
	"errors"
	"io"
	"log/slog"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
)

const sweepHelp = `Usage: microblog sweep [flags]

Deletes posts that no channel has: those of writers that were so slow, or lost for so long, that the
deletion of their channel was over when they wrote. Nobody can see them. It reads all posts.

Flags:

` + storeHelp

func sweepCommand() cli.Command {
	return cli.Command{Name: "sweep", Does: "delete posts that no channel has", Help: sweepHelp,
		Run: func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
			s := &sweeper{stdout: stdout, logger: plainlog.New(stderr)}
			f := cli.NewFlags("microblog sweep")
			f.StringVar(&s.account.Given, "account", "", "")
			f.StringVar(&s.data, "data", "", "")
			if _, err := cli.ParseFlags(f, args, "account", "data"); err != nil {
				return err
			}
			if err := s.exists("sweep"); err != nil {
				return err
			}
			return millrace.Run(ctx, s)
		}}
}

// sweeper is a [millrace.Runner] that sweeps once.
type sweeper struct {
	storeFlags
	stdout io.Writer
	logger *slog.Logger
}

// Halt does nothing: Run returns soon after its context ends.
func (*sweeper) Halt() {}

// Run sweeps.
func (s *sweeper) Run(ctx context.Context) error {
	data, err := s.open(ctx, s.logger)
	if err != nil {
		return err
	}
	deleted, err := data.site.Sweep(ctx)
	closing := data.close()
	if ctx.Err() != nil { // it begins again when it is called again
		cli.Say(s.stdout, "Stopped: %s of channels that are gone were deleted\n", cli.Plural(deleted, "post"))
		return closing
	}
	if err = errors.Join(err, closing); err != nil {
		return err
	}
	cli.Say(s.stdout, "%s of channels that are gone were deleted\n", cli.Plural(deleted, "post"))
	return nil
}
