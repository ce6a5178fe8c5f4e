// Bench measures Millrace. Each subcommand compares contenders in one run, in which they take turns, and
// reports medians as a table:
//
//	go run ./bench -h
//	go run ./bench latency -h
//
// Servers run in processes of their own. With -page a benchmark writes its table to a page of the documentation.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	{"growth", "how throughput and memory change with the messages that wait, the queues, and the handlers", func() benchmark { return new(growth) }},
	{"shards", "jobs a second that several limited queues carry", func() benchmark { return new(sharding) }},
	{"send", "jobs a second of a producer, one by one and packed, beside bare POSTs of net/http", func() benchmark { return new(producing) }},
	{"peers", "jobs a second, sent and handled, beside asynq, river, and NATS JetStream", func() benchmark { return new(peers) }},
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
	if slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		return writeOverview(out)
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

// harness is what all benchmarks use in a run.
type harness struct {
	dir      string    // a temporary folder
	progress io.Writer // for a person who waits
	machine  string
}

func (h *harness) say(format string, args ...any) {
	_, _ = fmt.Fprintf(h.progress, format+"\n", args...) // the figures matter more
}

// folder makes a folder. Remove it when it can be large.
func (h *harness) folder(name string) (string, error) {
	return os.MkdirTemp(h.dir, filepath.Base(name)+"-")
}

// takeTurns measures each contender once in every round, so that other load on the machine affects all alike.
func takeTurns[T fmt.Stringer](ctx context.Context, h *harness, rounds int, all []T, once func(who T, round int) error) error {
	for round := range rounds {
		for _, who := range all {
			h.say("round %d of %d: %v", round+1, rounds, who)
			if err := errors.Join(ctx.Err(), once(who, round)); err != nil {
				return fmt.Errorf("%v: %w", who, err)
			}
		}
	}
	return nil
}

// machine says what is measured on.
func machine() string {
	load := ""
	if text, err := os.ReadFile("/proc/loadavg"); err == nil { // Linux has it
		minute, _, _ := strings.Cut(string(text), " ")
		load = fmt.Sprintf(", a load of %s in the minute before", minute)
	}
	return fmt.Sprintf("%d processors, %s/%s, %s%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load)
}

// sample is what was counted in one window.
type sample struct {
	messages  int64 // handled and deleted
	wall      time.Duration
	processor time.Duration // user and system
	mallocs   uint64
	requests  int64 // that the server got
	limited   int64 // and of these, refused because of its limit
}

func (s sample) minus(o sample) sample {
	return sample{s.messages - o.messages, s.wall - o.wall, s.processor - o.processor, s.mallocs - o.mallocs, s.requests - o.requests, s.limited - o.limited}
}

func (s sample) perSecond() float64          { return float64(s.messages) / s.wall.Seconds() }
func (s sample) perProcessorSecond() float64 { return float64(s.messages) / s.processor.Seconds() }

// perMessage returns how many of something there were for each message.
func (s sample) perMessage(n float64) float64 { return n / float64(max(s.messages, 1)) }

// samples are those of a contender, one of each round.
type samples []sample

// median returns the median of a figure.
func (s samples) median(figure func(sample) float64) float64 {
	var all []float64
	for _, one := range s {
		all = append(all, figure(one))
	}
	return median(all)
}

// times returns the median of the ratios to a baseline within a round.
func (s samples) times(baseline samples, figure func(sample) float64) float64 {
	var all []float64
	for i, one := range s {
		all = append(all, figure(one)/figure(baseline[i]))
	}
	return median(all)
}

// median returns 0 of nothing.
func median(all []float64) float64 {
	n := len(all)
	if n == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return (all[(n-1)/2] + all[n/2]) / 2
}

// percentile returns the smallest of sorted durations that so many percent of them do not exceed.
func percentile(sorted []time.Duration, percent int) time.Duration {
	rank := (percent*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
}

// percentiles returns the texts of some percentiles, as columns of a table.
func percentiles(sorted []time.Duration, percents ...int) string {
	var all []string
	for _, p := range percents {
		all = append(all, milliseconds(percentile(sorted, p)))
	}
	return strings.Join(all, " | ")
}

func mebibytes(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// closers are closed in reverse order.
type closers []func() error

func (c *closers) add(one func() error) { *c = append(*c, one) }

func (c *closers) close() error {
	var errs []error
	for _, one := range slices.Backward(*c) {
		errs = append(errs, one())
	}
	*c = nil
	return errors.Join(errs...)
}

// parser reads the value of a flag, or one of several.
type parser[T any] func(text string) (T, error)

// one defines a flag with a single value.
func one[T any](f *flag.FlagSet, into *T, preset T, parse parser[T], name, usage string) {
	*into = preset
	f.Func(name, fmt.Sprintf("%s (default %v)", usage, preset), func(text string) (err error) {
		*into, err = parse(text)
		return err
	})
}

// several defines a flag with values that are separated by commas.
func several[T any](f *flag.FlagSet, into *[]T, preset []T, parse parser[T], name, usage string) {
	*into = preset
	defaults := strings.Join(strings.Fields(strings.Trim(fmt.Sprint(preset), "[]")), ",")
	f.Func(name, fmt.Sprintf("%s, separated by commas (default %s)", usage, defaults), func(text string) error {
		*into = nil
		for one := range strings.SplitSeq(text, ",") {
			v, err := parse(strings.TrimSpace(one))
			if err != nil {
				return err
			}
			*into = append(*into, v)
		}
		return nil
	})
}

// between refuses values outside a range.
func between[T cmp.Ordered](least, most T, parse parser[T]) parser[T] {
	return func(text string) (T, error) {
		v, err := parse(text)
		inside := v >= least && v <= most // NaN is not
		if err != nil || !inside {
			return v, fmt.Errorf("write a value from %v to %v", least, most)
		}
		return v, nil
	}
}

// named looks up values by their names.
func named[T fmt.Stringer](all []T) parser[T] {
	return func(text string) (found T, err error) {
		for _, one := range all {
			if one.String() == text {
				return one, nil
			}
		}
		return found, fmt.Errorf("unknown %q: choose from %v", text, all)
	}
}

const many = 1 << 30

// The usual ranges.
var (
	positive    = between(1, many, strconv.Atoi)
	notNegative = between(0, many, strconv.Atoi)
	lasting     = between(time.Microsecond, 24*time.Hour, time.ParseDuration)
	orNothing   = between(0, 24*time.Hour, time.ParseDuration)
)

// turns says how often each contender is measured.
type turns struct{ rounds int }

func (t *turns) flags(f *flag.FlagSet) {
	one(f, &t.rounds, 3, positive, "rounds", "how often each is measured")
}

// seed reads the seed of a schedule.
func seed(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		err = errors.New("write a number")
	}
	return n, err
}

// ascending sorts numbers and removes repeated ones.
func ascending(numbers []int) []int {
	slices.Sort(numbers)
	return slices.Compact(numbers)
}
