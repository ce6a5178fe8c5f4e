// Package cli is the command line of the large examples: a program with several commands. It prints
// each error as one line.
package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// Exit statuses.
const (
	StatusDone   = 0
	StatusFailed = 1
	StatusUsage  = 2
)

// Program is a program with several commands.
type Program struct {
	Name     string
	About    string // its purpose, in one sentence
	Bare     string // the effect without a command, in one line
	Commands []Command
	Hidden   []Command // not in the help

	// Run runs the program without a command. The first argument, if any, is a flag.
	Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error

	// Help is the help on the arguments of Run, with its heading. May be empty.
	Help string
}

// Command is one command of a program.
type Command struct {
	Name string
	Does string // in one line
	Help string // the whole help

	// Run parses the arguments and runs the command. It returns [flag.ErrHelp] if they ask for help.
	Run func(ctx context.Context, args []string, stdout, stderr io.Writer) error
}

// Execute runs the program and returns its exit status. An error is one line on stderr.
func (p *Program) Execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	err := p.dispatch(ctx, args, stdout, stderr)
	if err == nil {
		return StatusDone
	}
	Say(stderr, "%s: %s\n", p.Name, OneLine(err))
	if wrong := (*UsageError)(nil); errors.As(err, &wrong) {
		return StatusUsage
	}
	return StatusFailed
}

// dispatch runs the command that the arguments name.
func (p *Program) dispatch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "help", "-h", "-help", "--help":
			Say(stdout, "%s", p.Usage())
			return nil
		}
	}
	run, help := p.Run, p.Usage()
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		c, ok := p.command(args[0])
		if !ok {
			return UsageErrorf("unknown command %q; see %s -h", args[0], p.Name)
		}
		run, help, args = c.Run, c.Help, args[1:]
	}
	err := run(ctx, args, stdout, stderr)
	if errors.Is(err, flag.ErrHelp) {
		Say(stdout, "%s", help)
		return nil
	}
	return err
}

func (p *Program) command(name string) (Command, bool) {
	for _, all := range [][]Command{p.Commands, p.Hidden} {
		for _, c := range all {
			if c.Name == name {
				return c, true
			}
		}
	}
	return Command{}, false
}

// Usage returns the help of the program.
func (p *Program) Usage() string {
	var b strings.Builder
	width := 0
	for _, c := range p.Commands {
		width = max(width, len(p.Name)+1+len(c.Name))
	}
	line := func(command, does string) { fmt.Fprintf(&b, "  %-*s %s\n", width, command, does) }
	fmt.Fprintf(&b, "%s\n\nUsage:\n\n", p.About)
	line(p.Name, p.Bare)
	for _, c := range p.Commands {
		line(p.Name+" "+c.Name, c.Does)
	}
	if p.Help != "" {
		fmt.Fprintf(&b, "\n%s", p.Help)
	}
	fmt.Fprintf(&b, "\n%s COMMAND -h describes a command and its flags.\n\n"+
		"Exit status: 0 success, 1 failure, 2 invalid command line.\n", p.Name)
	return b.String()
}

// UsageError is an invalid command line.
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *UsageError) Unwrap() error { return e.Err }

// UsageErrorf formats a [UsageError].
func UsageErrorf(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// NewFlags returns the flags of a command, such as "mosaic render". Their usage is in its help.
func NewFlags(command string) *flag.FlagSet {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.SetOutput(io.Discard) // we print its errors ourselves, on one line
	return f
}

// ParseFlags parses the arguments of a command that has only flags. The flags in notEmpty must have
// a value. It returns the names of the flags that were given.
func ParseFlags(f *flag.FlagSet, args []string, notEmpty ...string) (given map[string]bool, err error) {
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, UsageErrorf("%w; see %s -h", err, f.Name())
	}
	if f.NArg() > 0 {
		return nil, UsageErrorf("unexpected argument %q; see %s -h", f.Arg(0), f.Name())
	}
	given = map[string]bool{}
	f.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, name := range notEmpty {
		if given[name] && strings.TrimSpace(f.Lookup(name).Value.String()) == "" {
			return nil, UsageErrorf("-%s is empty: give a value, or omit the flag", name)
		}
	}
	return given, nil
}
