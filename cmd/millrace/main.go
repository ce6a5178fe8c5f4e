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
	c := &console{in: os.Stdin, out: os.Stdout, err: os.Stderr, interactive: term.IsTerminal(int(os.Stdin.Fd())), watched: term.IsTerminal(int(os.Stderr.Fd())), getenv: os.Getenv}
	os.Exit(c.command(context.Background(), os.Args[1:]))
}

// The exit statuses.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130 // as in shells
)

// console is the program's input, output and environment.
type console struct {
	in          io.Reader
	out, err    io.Writer
	interactive bool // in is a terminal
	watched     bool // err is a terminal, for a progress bar
	getenv      func(string) string
}

// usageError is an invalid command line.
type usageError struct{ error }

// interruption is the end of a command by a signal.
type interruption struct{ error }

// command runs the command line and returns the exit status.
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
	if !closedPipe(err) { // the reader has closed the pipe, as head does
		// One line, even if an error has several.
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
	one, err := find(name)
	if err != nil {
		return err
	}
	return one.do(ctx, c, args)
}

// printf prints to a person. Errors are ignored, because there is no other output for them.
func printf(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...)
}
