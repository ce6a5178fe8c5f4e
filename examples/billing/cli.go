package main

import (
	"context"
	"flag"
	"io"
	"time"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
)

// commandLine is the command line.
func commandLine() *cli.Program {
	return &cli.Program{
		Name:  "billing",
		About: "Billing turns usage records into bills, exact to the cent, whatever is killed meanwhile.",
		Bare:  "do all of it in this process, and write a report",
		Commands: []cli.Command{
			initiatorCommand(), workerCommand(), controllerCommand(),
			shipCommand(), reportCommand(), scaleCommand(), generateCommand(),
		},
		Run:  runLocal,
		Help: localHelp,
	}
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return commandLine().Execute(ctx, args, stdout, stderr)
}

// program names the folders of this program, and says what its blobs are.
var program = account.Program{Name: "billing", Blobs: "batches"}

// grace is how long handlers may finish after the work is done or the user interrupts. Messages still being handled then
// are given back.
const grace = 2 * time.Second

// accountFlags are the flags of commands that use an account.
type accountFlags struct {
	account account.Flag
	blobs   string
}

const accountHelp = `  -account LOCATION  where the queues are (default: the environment variable AZURE_STORAGE, or
                     else the server on this machine, which millrace serve starts):
                       UseDevelopmentStorage=true    the server on this machine
                       a storage connection string
                       https://ACCOUNT.queue.core.windows.net
                       @FILE                         a file with one of them
`

const blobsHelp = `  -blobs DIR         where batches are stored; the same for all processes on the account
                     (default: a folder for the account in your data directory, or the blob
                     service of an account in Azure or Azurite)
`

func (a *accountFlags) flags(f *flag.FlagSet) {
	f.StringVar(&a.account.Given, "account", "", "")
	f.StringVar(&a.blobs, "blobs", "", "")
}
