// Bench measures Millrace. Each subcommand compares contenders in one run, in which they take turns, and
// reports medians as a table:
//
//	go run ./bench -h
//	go run ./bench latency -h
//
// Servers run in processes of their own. With -page a benchmark writes its table to a page of the documentation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

type benchmark interface {
	flags(f *flag.FlagSet)
	check() error // refuses invalid flags
	run(ctx context.Context, h *harness) (*report, error)
}

var commands = []struct {
	name, summary string
	new           func() benchmark
}{
	{"load", "messages a second of a listener, beside hand-written loops", func() benchmark { return new(load) }},
	{"latency", "how long a job waits, from the return of Send to the first line of its handler", func() benchmark { return new(latency) }},
	{"pickup", "how long a critical job waits while another queue of its process is flooded", func() benchmark { return new(pickup) }},
	{"shards", "jobs a second that several limited queues carry", func() benchmark { return new(sharding) }},
	{"emulators", "messages a second of millrace serve, beside Azurite", func() benchmark { return new(emulators) }},
	{"table", "entities a second of a file of tables, beside SQLite", func() benchmark { return new(tables) }},
	{"scaling", "late jobs and instance-hours of the agent and of other rules, in a simulation", func() benchmark { return new(comparison) }},
	{"billing", "records a second and memory of the billing example", func() benchmark { return new(billing) }},
}

func main() {
	playRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted:
		fmt.Fprintln(os.Stderr, "bench: interrupted")
		os.Exit(130)
	case errors.As(err, new(mistake)):
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// mistake is an error of the command line.
type mistake struct{ error }

// run runs a subcommand.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		return mistake{errors.New("which benchmark? go run ./bench -h lists them")}
	}
	for _, help := range []string{"-h", "-help", "--help", "help"} {
		if args[0] == help {
			return writeOverview(out)
		}
	}
	for _, c := range commands {
		if c.name == args[0] {
			return runOne(ctx, c.new(), c.name, c.summary, args[1:], out, progress)
		}
	}
	return mistake{fmt.Errorf("unknown benchmark %q: go run ./bench -h lists all", args[0])}
}

func runOne(ctx context.Context, b benchmark, name, summary string, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error
	at := page{name: name}
	flags.StringVar(&at.path, "page", "", "write the table to this `file`, between its marks")
	b.flags(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return writeHelp(out, flags, summary)
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil:
		err = b.check()
	}
	if err == nil {
		_, _, err = at.cut() // before anything is measured
	}
	if err != nil {
		return mistake{fmt.Errorf("%s: %w", name, err)}
	}
	h := &harness{progress: progress, machine: machine()}
	if h.dir, err = os.MkdirTemp("", "millrace-bench-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(h.dir) }() // it is a temporary folder
	r, err := b.run(ctx, h)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if _, err := io.WriteString(out, r.table); err != nil {
		return err
	}
	return at.write(r)
}

func writeOverview(out io.Writer) error {
	var b strings.Builder
	b.WriteString("Usage: bench BENCHMARK [flags]\n\n")
	for _, c := range commands {
		fmt.Fprintf(&b, "  %-10s %s\n", c.name, c.summary)
	}
	b.WriteString("\n\"bench BENCHMARK -h\" lists the flags of one.\n")
	_, err := io.WriteString(out, b.String())
	return err
}

func writeHelp(out io.Writer, flags *flag.FlagSet, summary string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: bench %s [flags]\n\nIt measures %s.\n\n", flags.Name(), summary)
	flags.SetOutput(&b)
	flags.PrintDefaults()
	_, err := io.WriteString(out, b.String())
	return err
}

// report is the result of a benchmark.
type report struct {
	head  string // above the table, on a page
	table string // in Markdown
}

// page is a document with a place for the report of a benchmark. Without a path there is none.
type page struct{ name, path string }

// marks returns the lines around the report.
func (p page) marks() (begin, end string) {
	return fmt.Sprintf("<!-- %[1]s: written by bench %[1]s -->\n", p.name), fmt.Sprintf("<!-- %s: end -->\n", p.name)
}

// cut returns the text before and after the report, with the marks.
func (p page) cut() (before, after string, err error) {
	if p.path == "" {
		return "", "", nil
	}
	text, err := os.ReadFile(p.path)
	if err != nil {
		return "", "", fmt.Errorf("-page: %w", err)
	}
	begin, end := p.marks()
	before, rest, begins := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", "", fmt.Errorf("-page %s: it must have the lines %q and %q", p.path, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin, end + after, nil
}

// write replaces the text between the marks.
func (p page) write(r *report) error {
	before, after, err := p.cut()
	if err != nil || p.path == "" {
		return err
	}
	return os.WriteFile(p.path, []byte(before+"\n"+r.head+r.table+"\n"+after), 0o644)
}
