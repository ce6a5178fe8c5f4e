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
	playRole()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.SetOutput(progress)
	names := flags.String("transports", "", "who, separated by commas (default all)")
	rates := flags.String("rates", "1:100s,100:10s,1000:5s", "jobs a second, and for how long")
	flags.IntVar(&p.rounds, "rounds", 3, "how often each is measured; the figures are of all rounds")
	flags.IntVar(&p.trips, "round-trips", 200, "how many dequeues are measured before each, at most")
	flags.IntVar(&p.warmUp, "warm-up", 64, "how many jobs are sent before that")
	flags.Uint64Var(&p.seed, "seed", 1, "of the schedules")
	to := report.New("latency", flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := errors.Join(p.chooseTransports(*names), p.parseRates(*rates), p.check()); err != nil {
		return err
	}
	server, at, err := startServers()
	if err != nil {
		return err
	}
	results, err := p.measure(ctx, at, progress)
	if err = errors.Join(err, server.stop()); err != nil {
		return err
	}
	return to.Write(out, to.Machine()+".\n\n", writeTable(results)+verdict(results), plot(results))
}

func (p plan) check() error {
	if p.rounds < 1 || p.trips < 1 || p.warmUp < 1 {
		return errors.New("-rounds, -round-trips and -warm-up must be at least 1")
	}
	return nil
}

func (p *plan) chooseTransports(names string) error {
	if names == "" {
		p.transports = transports
		return nil
	}
	for name := range strings.SplitSeq(names, ",") {
		t, err := transportByName(name)
		if err != nil {
			return err
		}
		p.transports = append(p.transports, t)
	}
	return nil
}

func (p *plan) parseRates(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		count, window, _ := strings.Cut(one, ":")
		perSecond, err1 := strconv.ParseFloat(count, 64)
		d, err2 := time.ParseDuration(window)
		if err1 != nil || err2 != nil || !(perSecond > 0 && perSecond <= 100_000) || d <= 0 {
			return fmt.Errorf("-rates %q: write jobs a second and for how long, such as 100:10s", one)
		}
		p.rates = append(p.rates, rate{perSecond, d})
	}
	return nil
}
