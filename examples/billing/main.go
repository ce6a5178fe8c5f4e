// Command billing turns usage records into bills, exact to the cent, even if processes are killed meanwhile.
//
// Read roles.go first: it is the way of a batch through initiator, workers and controller. Then ship.go, which makes
// the batches, and books/books.go, which bills every record once.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"strings"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
)

func main() { os.Exit(command(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

func commandLine() *cli.Program {
	return &cli.Program{
		Name:  "billing",
		About: "Billing turns usage records into bills, exact to the cent, even if processes are killed meanwhile.",
		Bare:  "do all of it in this process, and write a report",
		Commands: []cli.Command{
			{Name: "initiator", Does: "split batches into work items", Help: initiatorHelp, Run: runs("initiator", plays("initiator", initiator))},
			{Name: "worker", Does: "compute the amounts of records; any number of them may run", Help: workerHelp, Run: runs("worker", plays("worker", worker))},
			{Name: "controller", Does: "add up batches and record them in the books", Help: controllerHelp, Run: runs("controller", plays("controller", controller))},
			{Name: "ship", Does: "ship usage records to the initiator, in batches", Help: shipHelp, Run: runs("ship", shipping)},
			{Name: "report", Does: "write a report of everything in the books", Help: reportHelp, Run: runs("report", reporting)},
			{Name: "scale", Does: "show how an agent starts and ends workers under a flood", Help: scaleHelp, Run: runs("scale", scaleShow)},
		},
		Run:  runs("", local),
		Help: localHelp,
	}
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return commandLine().Execute(ctx, args, stdout, stderr)
}

// define defines the flags of a command. Its result is called after they are parsed, with the names of the given flags.
type define func(f *flag.FlagSet, show *cli.Show) func(given map[string]bool) (millrace.Runner, error)

// runs returns the Run of a command. No flag may be empty.
func runs(name string, d define) func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return func(ctx context.Context, args []string, stdout, stderr io.Writer) error {
		show := cli.NewShow(stdout, stderr)
		f := cli.NewFlags(strings.TrimSpace("billing " + name))
		with := d(f, show)
		var notEmpty []string
		f.VisitAll(func(f *flag.Flag) {
			if f.Name != "in" { // it is repeatable, and so its value is empty
				notEmpty = append(notEmpty, f.Name)
			}
		})
		given, err := cli.ParseFlags(f, args, notEmpty...)
		if err != nil {
			return err
		}
		runner, err := with(given)
		if err != nil {
			return err
		}
		return millrace.Run(ctx, runner)
	}
}

var program = account.Program{Name: "billing", Blobs: "batches"}

// accountFlags are the flags of commands that use an account.
type accountFlags struct {
	account account.Flag
	blobs   string
}

const (
	accountHelp = `  -account LOCATION  where the queues are: a connection string, https://ACCOUNT.queue.core.windows.net,
                     or @FILE, a file with one of them (default: the environment variable AZURE_STORAGE,
                     or else the server on this machine, which millrace serve starts)
`
	blobsHelp = `  -blobs DIR         where batches are stored; the same for all processes on the account
                     (default: a folder for the account in your data directory, or the blob
                     service of an account in Azure or Azurite)
`
)

func (a *accountFlags) flags(f *flag.FlagSet) {
	f.StringVar(&a.account.Given, "account", "", "")
	f.StringVar(&a.blobs, "blobs", "", "")
}

// systemOn returns a system on the queues and the wake-ups of an account.
func systemOn(a *account.Account, store blob.Store, o options) (*system, error) {
	queues, err := a.Queues()
	if err != nil {
		return nil, err
	}
	o.wakeups, o.idle = a.Wakeups(), a.Idle()
	return newSystem(queues, store, o)
}
