package main

import (
	"context"
	"io"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/roles"
)

// mosaicProgram names the folders of this program, and describes its blobs.
var mosaicProgram = account.Program{Name: "mosaic", Blobs: "pictures"}

func commandLine() *cli.Program {
	return &cli.Program{
		Name:  "mosaic",
		About: "Mosaic turns a photograph into a photo mosaic.",
		Bare:  "make a mosaic of the built-in photograph: " + defaultOut,
		Commands: []cli.Command{
			{Name: "render", Does: "make a mosaic of a photograph", Help: renderHelp, Run: runRender},
			{Name: "serve", Does: "serve a page that makes mosaics", Help: serveHelp, Run: runServe},
			{Name: "controller", Does: "choose tiles and compose mosaics", Help: controllerHelp, Run: runWorker("controller", roles.Controller)},
			{Name: "processor", Does: "render slices; any number of them may run", Help: processorHelp, Run: runWorker("processor", roles.Processor)},
			{Name: "compare", Does: "score mosaics of a picture", Help: compareHelp, Run: runCompare},
		},
		Run: sample,
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
	return render(ctx, settings{out: defaultOut, tile: defaultTile, tint: layout.DefaultTint, reuse: layout.DefaultReuse, account: account.Embedded}, stdout, stderr)
}

// The help on the flags that several commands have.
const (
	locationHelp = `                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
`
	blobsHelp = `  -blobs DIR         where pictures are stored; the same for all processes on the account
                     (default: a folder for the account in your data directory, or the blob
                     service of an account in Azure or Azurite)
`
)

// openRoles opens the roles that a process plays, once the queue server answers. It sets the options that depend on the
// account, unless they are set.
func openRoles(ctx context.Context, a *account.Account, b *account.Blobs, o roles.Options) (*roles.System, error) {
	if _, err := a.Server(ctx); err != nil {
		return nil, err
	}
	if o.Idle.Max == 0 {
		o.Idle = a.Idle()
	}
	o.Wakeups, o.Grace = a.Wakeups(), grace
	return roles.Open(a.Queue, b.Store, o)
}
