package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/millrace/millrace/bench/internal/report"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "billing:", err)
		os.Exit(1)
	}
}

// plan is what is measured.
type plan struct {
	records        []int
	batch, workers int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("billing", flag.ContinueOnError)
	flags.SetOutput(progress)
	counts := flags.String("records", "200000,2000000", "how many records, separated by commas, ascending; memory is compared with the first")
	flags.IntVar(&p.batch, "batch", 20_000, "records of a batch, which is a day: more records are more days")
	flags.IntVar(&p.workers, "workers", 2, "processes that charge records")
	to := report.New("billing", flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(p.parse(*counts), p.check()); err != nil {
		return err
	}
	results, err := p.measure(ctx, progress)
	if err != nil {
		return err
	}
	return to.Write(out, link+"\n\n"+to.Machine()+".\n\n", p.table(results)+"\n"+verdict(results), p.plot(results))
}

func (p *plan) parse(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 || len(p.records) > 0 && n <= p.records[len(p.records)-1] {
			return fmt.Errorf("-records %q: write ascending numbers, such as 200000,2000000", text)
		}
		p.records = append(p.records, n)
	}
	return nil
}

func (p *plan) check() error {
	if p.batch < 1 || p.workers < 1 {
		return errors.New("-batch and -workers must be positive")
	}
	return nil
}
