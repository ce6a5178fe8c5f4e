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
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

func main() {
	serveIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "shards:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("shards", flag.ContinueOnError)
	flags.SetOutput(progress)
	counts := flags.String("shards", "1,2,4,8", "how many queues, separated by commas, ascending; ratios are to the first")
	flags.IntVar(&p.limit, "limit", 2000, "messages a second and queue: each put, got and deleted one counts; 0 for none")
	flags.IntVar(&p.window, "under-way", 64, "jobs under way for each queue at most, sent and not yet deleted")
	flags.IntVar(&p.rounds, "rounds", 3, "how often each is measured; the figures are medians")
	flags.DurationVar(&p.warmUp, "warm-up", 3*time.Second, "before each measurement: it takes the second's worth that an idle queue saves")
	flags.DurationVar(&p.span, "for", 10*time.Second, "how long each is measured")
	to := report.New("shards", flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(p.parseShards(*counts), p.check()); err != nil {
		return err
	}
	s, err := startServer(p.limit)
	if err != nil {
		return err
	}
	results, err := p.measure(ctx, s, progress)
	if err = errors.Join(err, s.stop()); err != nil {
		return err
	}
	return to.Write(out, link+"\n\n"+to.Machine()+".\n\n", p.table(results)+"\n"+verdict(results), p.plot(results))
}

func (p *plan) parseShards(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		k, err := strconv.Atoi(one)
		if err != nil || k < 1 || k > 64 || len(p.shards) > 0 && k <= p.shards[len(p.shards)-1] {
			return fmt.Errorf("-shards %q: write ascending numbers up to 64, such as 1,2,4", text)
		}
		p.shards = append(p.shards, k)
	}
	return nil
}

func (p *plan) check() error {
	if p.rounds < 1 || p.window < 1 || p.span <= 0 || p.warmUp < 0 || p.limit < 0 {
		return errors.New("-rounds, -under-way and -for must be positive, -warm-up and -limit not negative")
	}
	return nil
}
