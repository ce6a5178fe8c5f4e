package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

func main() {
	pageThroughIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
}

// plan says what is measured.
type plan struct {
	contenders []contender
	callers    []int
	rounds     int
	span       time.Duration // of each measurement
	stored     int           // entities that a table has before it is measured
	many       int           // entities of the file that is opened and paged through; 0 for none
	dir        string
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("table", flag.ContinueOnError)
	flags.SetOutput(progress)
	who := flags.String("contenders", "filetable,sqlite,azurite", "which stores; the others are compared with the first")
	callers := flags.String("callers", "1,16", "numbers of concurrent callers, each with one call at a time")
	flags.IntVar(&p.rounds, "rounds", 3, "how often each is measured; the figures are medians")
	flags.DurationVar(&p.span, "for", 3*time.Second, "how long each is measured")
	flags.IntVar(&p.stored, "stored", 50_000, "entities that a table has before it is measured")
	flags.IntVar(&p.many, "many", 1_000_000, "entities of the file that is opened and paged through; 0 for none")
	flags.StringVar(&p.dir, "dir", "", "a folder on the disk to measure; the system's temporary one by default")
	to := report.NewWithoutPlot("table", flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(p.chooseContenders(*who), p.parseCallers(*callers), p.check()); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(p.dir, "millrace-bench-table-*")
	if err != nil {
		return err
	}
	p.dir = dir
	r, err := p.measure(ctx, progress)
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return err
	}
	above := fmt.Sprintf("%s, %s.\n\n", time.Now().UTC().Format(time.DateOnly), to.Machine())
	return to.WriteTable(out, above, r.table())
}

func (p *plan) chooseContenders(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(contenders, func(c contender) bool { return c.name == name })
		if i < 0 {
			return fmt.Errorf("-contenders %q: write some of filetable, sqlite and azurite, separated by commas", names)
		}
		p.contenders = append(p.contenders, contenders[i])
	}
	return nil
}

func (p *plan) parseCallers(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 || n > 1024 {
			return fmt.Errorf("-callers %q: write numbers up to 1024, such as 1,16", text)
		}
		p.callers = append(p.callers, n)
	}
	return nil
}

func (p *plan) check() error {
	if p.rounds < 1 || p.span <= 0 || p.stored < pageSize || p.many < 0 {
		return fmt.Errorf("-rounds and -for must be positive, -stored %d at least, -many not negative", pageSize)
	}
	return nil
}
