package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"

	"github.com/millrace/millrace/bench/internal/report"
	"github.com/millrace/millrace/scaling/replay"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "scaling:", err)
		os.Exit(1)
	}
}

// files are the values of a flag that may come several times.
type files []string

func (f *files) String() string { return fmt.Sprint(*f) }

func (f *files) Set(name string) error {
	*f = append(*f, name)
	return nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("scaling", flag.ContinueOnError)
	flags.SetOutput(progress)
	var own files
	flags.Var(&own, "trace", "replay the trace in this file instead of the generated ones; may be given several times")
	only := flags.String("only", "", "replay only the traces whose names match this regular expression")
	seed := flags.Uint64("seed", 1, "of the generated traces")
	others := flags.Int("others", 3, "how many other seeds the generated traces are replayed with, for the table of those; 0 for none")
	tune := flags.Bool("tune", true, "also replay each rule with the settings that are best for the trace, found by trying many")
	to := report.New("scaling", flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only %q: %w", *only, err)
	}
	if *others < 0 {
		return fmt.Errorf("-others is %d: it must not be negative", *others)
	}
	traces, err := load(own, *seed, wanted)
	if err != nil {
		return err
	}
	c := comparison{tune: *tune, progress: progress}
	compared, err := c.compare(ctx, traces)
	if err != nil {
		return err
	}
	table := tables(compared)
	if len(own) == 0 && *others > 0 {
		held, err := c.elsewhere(ctx, *seed, *others, wanted)
		if err != nil {
			return err
		}
		table += held
	}
	if err := to.Write(out, images+"\n\n", table, pareto(compared)); err != nil {
		return err
	}
	return to.WriteImage("scaling-timeline", timelines(compared))
}

// images are the plots on the page.
const images = "![Late jobs and instance-hours of each rule on each trace](images/scaling.svg)\n\n" +
	"![Instances over time on three traces](images/scaling-timeline.svg)"

// load returns the traces of files, or the generated ones.
func load(own files, seed uint64, wanted *regexp.Regexp) ([]replay.Trace, error) {
	var all []replay.Trace
	for _, name := range own {
		t, err := read(name)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if len(own) == 0 {
		all = generated(seed)
	}
	var traces []replay.Trace
	for _, t := range all {
		if wanted.MatchString(t.Name) {
			traces = append(traces, t)
		}
	}
	if len(traces) == 0 {
		return nil, fmt.Errorf("-only %q: no trace has such a name", wanted)
	}
	return traces, nil
}

func read(name string) (replay.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return replay.Trace{}, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	t, err := replay.Read(f, name)
	if err != nil {
		return t, err
	}
	return t, t.Check()
}

// wrong is how far readings are off, and which share of them fails, on the traces with wrong readings.
const wrong = 0.1

// generated returns the traces of both sizes, and of each size one with wrong readings.
func generated(seed uint64) (traces []replay.Trace) {
	for _, size := range []replay.Size{replay.Small(), replay.Large()} {
		disturbed := replay.Flash(size, seed)
		disturbed.Name += ", wrong readings"
		disturbed.Noise, disturbed.Missing = wrong, wrong
		traces = append(append(traces, replay.Generated(size, seed)...), disturbed)
	}
	return traces
}
