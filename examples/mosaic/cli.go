package main

import (
	"context"
	"io"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
)

// commandLine is the command line.
func commandLine() *cli.Program {
	return &cli.Program{
		Name:     "mosaic",
		About:    "Mosaic turns a photograph into a photo mosaic.",
		Bare:     "make a sample picture and render it to " + defaultOut,
		Commands: []cli.Command{renderCommand(), serveCommand(), controllerCommand(), processorCommand(), cleanCommand(), compareCommand()},
		Run:      sample,
	}
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return commandLine().Execute(ctx, args, stdout, stderr)
}

// sample renders the built-in picture.
func sample(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		return cli.UsageErrorf("unknown flag %q; see mosaic -h", args[0])
	}
	return render(ctx, settings{out: defaultOut, tile: defaultTile, tint: layout.DefaultTint, account: account.Embedded}, stdout, stderr)
}
