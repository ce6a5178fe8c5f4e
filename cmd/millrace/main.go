package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/millrace/millrace/internal/naming"
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
	name, args := args[0], args[1:]
	switch name {
	case "-version", "--version":
		name = "version"
	case "-h", "-help", "--help":
		name = "help"
	}
	one, err := find(name)
	if err == nil {
		err = one.do(ctx, c, args)
	}
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

// printf prints to a person. Errors are ignored, because there is no other output for them.
func printf(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...)
}

// documents is where texts for users send them: not everybody has the repository.
const documents = "https://github.com/millrace/millrace/blob/main/docs/"

// output is the standard output. It marks its errors, to distinguish them from network errors.
type output struct{ to io.Writer }

// Write implements io.Writer.
func (o output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		err = &outputError{err}
	}
	return n, err
}

// outputError means that the output could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string { return "cannot write the output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// closedPipe reports whether the reader of the output has closed the pipe. On Unix the signal
// usually ends the process first.
func closedPipe(err error) bool {
	failed := (*outputError)(nil)
	return errors.As(err, &failed) && (errors.Is(failed.err, syscall.EPIPE) || errors.Is(failed.err, io.ErrClosedPipe))
}

// command is one command of the program. Each command line creates its own, because flags point
// into it.
type command struct {
	name     string
	args     string // arguments, for the help
	does     string // one-line description
	more     string // help before the flags
	epilogue string // help after the flags
	flags    *flag.FlagSet
	hint     func(wrong string) string // what to do about an error of the flags; nil for none
	minArgs  int                       // arguments besides flags
	maxArgs  int                       // negative for any number
	run      func(ctx context.Context, c *console, args []string) error

	// verbs are the commands under this one, which then has only a name, args and help. Their
	// names begin with its own.
	verbs []*command
}

// commands returns all commands in the order of the help.
func commands() []*command {
	return []*command{
		serveCommand(), faultsCommand(),
		queuesCommand(), createCommand(), dropCommand(),
		putCommand(), peekCommand(), clearCommand(), pauseCommand(), resumeCommand(), statCommand(), poisonCommand(), bodiesCommand(),
		agentCommand(), instancesCommand(), costCommand(),
		versionCommand(), completionCommand(), helpCommand(),
	}
}

func newFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet("millrace "+name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // we print errors ourselves, on one line
	f.Usage = func() {}
	return f
}

// do parses the arguments and runs the command, or the one of its verbs that they begin with.
func (o *command) do(ctx context.Context, c *console, args []string) error {
	if o.verbs != nil {
		return o.doVerb(ctx, c, args)
	}
	args, err := parseInterspersed(o.flags, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return o.help(c.out)
	case err != nil:
		err = usageError{fmt.Errorf("%w; %s", err, o.advice(err.Error()))}
	case o.maxArgs == 0 && len(args) > 0:
		err = usageError{fmt.Errorf("%s is not a flag: flags begin with a dash; see millrace help %s", quote(args[0]), o.name)}
	case o.maxArgs > 0 && len(args) > o.maxArgs:
		err = usageError{fmt.Errorf("unexpected argument %s: write millrace %s %s", quote(args[o.maxArgs]), o.name, o.args)}
	case len(args) < o.minArgs:
		err = usageError{fmt.Errorf("missing argument: write millrace %s %s", o.name, o.args)}
	default:
		err = o.run(ctx, c, args)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return nil
}

func (o *command) doVerb(ctx context.Context, c *console, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s: missing verb: write millrace %s %s; the verbs are %s", o.name, o.name, o.args, strings.Join(o.verbNames(), ", "))}
	}
	switch args[0] {
	case "-h", "-help", "--help":
		return o.help(c.out)
	}
	one, err := o.verb(args[0])
	if err != nil {
		return err
	}
	return one.do(ctx, c, args[1:])
}

func (o *command) verb(name string) (*command, error) {
	for _, one := range o.verbs {
		if one.name == o.name+" "+name {
			return one, nil
		}
	}
	all := o.verbNames()
	wrong := "unknown verb " + quote(name) + naming.Hint(name, all)
	if strings.HasPrefix(name, "-") {
		wrong = "the verb comes before the flags"
	}
	return nil, usageError{fmt.Errorf("%s: %s; the verbs are %s", o.name, wrong, strings.Join(all, ", "))}
}

func (o *command) verbNames() []string {
	var all []string
	for _, one := range o.verbs {
		all = append(all, strings.TrimPrefix(one.name, o.name+" "))
	}
	return all
}

// advice returns what to do about an error of the flags.
func (o *command) advice(wrong string) string {
	advice := "see millrace help " + o.name
	if o.hint != nil {
		advice = cmp.Or(o.hint(wrong), advice)
	}
	if _, name, undefined := strings.Cut(wrong, undefinedFlag); undefined {
		if meant := naming.Closest(name, o.flagNames("")); meant != "" {
			return "did you mean -" + meant + "? " + advice
		}
	}
	return advice
}

// undefinedFlag is in the error of package flag for an unknown flag, before its name.
const undefinedFlag = "provided but not defined: -"

func (o *command) flagNames(dash string) []string {
	var all []string
	o.flags.VisitAll(func(f *flag.Flag) { all = append(all, dash+f.Name) })
	return all
}

// parseInterspersed parses flags anywhere among the arguments, which it returns. After -- there
// are no more flags.
func parseInterspersed(f *flag.FlagSet, args []string) (others []string, err error) {
	for {
		if err := f.Parse(args); err != nil {
			return nil, err
		}
		rest := f.Args()
		if len(rest) == 0 {
			return others, nil
		}
		// No flag of ours takes -- as its value.
		if read := len(args) - len(rest); read > 0 && args[read-1] == "--" {
			return append(others, rest...), nil
		}
		others, args = append(others, rest[0]), rest[1:]
	}
}

// usage returns the help without arguments.
func usage() string {
	var b strings.Builder
	b.WriteString("Millrace serves the Azure Queue Storage protocol on this machine, and creates, fills, shows, pauses\nand clears the queues of any account.\n\nUsage:\n\n")
	for _, o := range commands() {
		fmt.Fprintf(&b, "  %-34s%s\n", strings.TrimSpace("millrace "+o.name+" "+o.args), o.does)
	}
	b.WriteString(usageEnd)
	return b.String()
}

const usageEnd = `
millrace help COMMAND describes a command and its flags. Flags may come before and after the
other arguments.

Without -account, commands use the account in the environment variable AZURE_STORAGE, or else
the server that millrace serve starts on this machine.

Exit status: 0 success, 1 failure, 2 invalid command line, 130 interrupted.
`

func commandNames() []string {
	var names []string
	for _, o := range commands() {
		names = append(names, o.name)
	}
	return names
}

func find(name string) (*command, error) {
	for _, o := range commands() {
		if o.name == name {
			return o, nil
		}
	}
	all := commandNames()
	wrong := "unknown command " + quote(name) + naming.Hint(name, all)
	var owners []string // commands that have it as a verb
	for _, o := range commands() {
		if slices.Contains(o.verbNames(), name) {
			owners = append(owners, o.name+" "+name)
		}
	}
	if len(owners) == 1 {
		wrong = "unknown command " + quote(name) + ", did you mean " + owners[0] + "?"
	}
	if strings.HasPrefix(name, "-") {
		wrong = "the command comes first, then its flags"
	}
	return nil, usageError{fmt.Errorf("%s; the commands are %s", wrong, strings.Join(all, ", "))}
}

func (o *command) help(out io.Writer) error {
	var b strings.Builder
	heading := "millrace " + o.name
	if o.args != "" {
		heading += " " + o.args
	}
	hasFlags := false
	o.flags.VisitAll(func(*flag.Flag) { hasFlags = true })
	if hasFlags {
		heading += " [flags]"
	}
	fmt.Fprintf(&b, "Usage: %s\n\n%s.\n", heading, strings.ToUpper(o.does[:1])+o.does[1:])
	if o.more != "" {
		b.WriteString("\n" + o.more)
	}
	for i, one := range o.verbs {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "  %-38s%s\n", "millrace "+one.name+" "+one.args, one.does)
	}
	if hasFlags {
		b.WriteString("\nFlags:\n\n")
		o.flags.SetOutput(&b)
		o.flags.PrintDefaults()
	}
	b.WriteString(o.epilogue)
	_, err := io.WriteString(out, b.String())
	return err
}

func helpCommand() *command {
	return &command{name: "help", args: "[COMMAND]", does: "show this text, or the help of a command", flags: newFlags("help"), maxArgs: 2,
		run: func(_ context.Context, c *console, args []string) error {
			if len(args) == 0 {
				_, err := io.WriteString(c.out, usage())
				return err
			}
			o, err := find(args[0])
			switch {
			case err != nil:
				return err
			case len(args) == 1:
				return o.help(c.out)
			case o.verbs == nil:
				return usageError{fmt.Errorf("unexpected argument %s: write millrace help %s", quote(args[1]), o.name)}
			}
			one, err := o.verb(args[1])
			if err != nil {
				return err
			}
			return one.help(c.out)
		}}
}
