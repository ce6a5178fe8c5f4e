package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

func main() {
	c := &console{in: os.Stdin, out: os.Stdout, err: os.Stderr, interactive: term.IsTerminal(int(os.Stdin.Fd())), getenv: os.Getenv}
	os.Exit(c.command(context.Background(), os.Args[1:]))
}

// The statuses that the program ends with.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as shells have it
)

// console is what the program reads, writes and finds when it starts.
type console struct {
	in          io.Reader
	out, err    io.Writer
	interactive bool // in is a terminal, where somebody can be asked
	getenv      func(string) string
}

// misuse is a command line that cannot be meant.
type usageError struct{ error }

// stopped is the end of a command that was told to stop.
type interruption struct{ error }

// command does what the arguments say and returns the status to end with.
func (c *console) command(ctx context.Context, args []string) int {
	if len(args) == 0 {
		printf(c.err, "%s", usage())
		return exitUsage
	}
	c.out = output{c.out}
	err := c.dispatch(ctx, args)
	if err == nil {
		return exitOK
	}
	if !closedPipe(err) { // who reads no more, as head, wants to hear no more
		// One line, whatever an error from elsewhere is made of.
		printf(c.err, "millrace: %s\n", redact(strings.Join(strings.Fields(err.Error()), " ")))
	}
	switch {
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.As(err, new(interruption)):
		return exitInterrupted
	}
	return exitFailure
}

func (c *console) dispatch(ctx context.Context, args []string) error {
	name, args := args[0], args[1:]
	switch name {
	case "-version", "--version":
		name = "version"
	case "-h", "-help", "--help":
		name = "help"
	}
	for _, one := range commands() {
		if one.name == name {
			return one.do(ctx, c, args)
		}
	}
	if strings.HasPrefix(name, "-") {
		return usageError{fmt.Errorf("the command comes first, then its flags; %s", listCommands())}
	}
	return usageError{fmt.Errorf("there is no command %s; %s", quote(name), listCommands())}
}

// say writes what a person is told. Where it cannot be written there is nobody to tell.
func printf(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...)
}
