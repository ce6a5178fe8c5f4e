package main

import (
	"context"
	"io"

	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
)

func commandLine() *cli.Program {
	return &cli.Program{
		Name:     "microblog",
		About:    "Microblog has channels with posts, and deletes a channel with all of its posts, whatever is killed meanwhile.",
		Bare:     "serve the pages, and carry out deletions, until Ctrl-C",
		Commands: []cli.Command{demoCommand(), sweepCommand()},
		Hidden:   []cli.Command{victimCommand()},
		Run:      serve,
		Help:     serveHelp,
	}
}

// command runs the program and returns its exit status.
func command(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return commandLine().Execute(ctx, args, stdout, stderr)
}

// program names the folders of this program, and says what its tables hold.
var program = account.Program{Name: "microblog", Tables: "channels and posts", Flag: "-data"}
