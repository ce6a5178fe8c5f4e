package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/millrace/millrace/bench/internal/report"
)

func main() {
	if os.Getenv(serverVariable) != "" {
		os.Exit(serve(os.Stdin, os.Stdout, os.Stderr))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "pickup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("pickup", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.IntVar(&p.slots, "slots", 64, "slots of the pool")
	flags.IntVar(&p.reserve, "reserve", 8, "of these, slots that only the critical queue takes, in the rows with a reserve")
	flags.DurationVar(&p.heavy, "heavy", time.Second, "how long a heavy job takes")
	flags.DurationVar(&p.critical, "critical", 5*time.Millisecond, "how long a critical job takes")
	flags.Float64Var(&p.perSecond, "rate", 100, "critical jobs a second")
	flags.DurationVar(&p.window, "window", 20*time.Second, "how long critical jobs are sent, for each row and round")
	flags.IntVar(&p.rounds, "rounds", 3, "how often each row is measured; the figures are of all rounds")
	flags.IntVar(&p.warmUp, "warm-up", 64, "how many critical jobs are sent before each")
	flags.Uint64Var(&p.seed, "seed", 1, "of the schedules")
	to := report.New("pickup", flags)
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if err := p.check(); err != nil {
		return err
	}
	server, err := startServer()
	if err != nil {
		return err
	}
	results, err := p.measure(ctx, server.connection, progress)
	if err = errors.Join(err, server.stop()); err != nil {
		return err
	}
	return to.Write(out, to.Machine()+". ", p.writeTable(results)+verdict(results), p.plot(results))
}

// check refuses a plan that would measure something else than it says.
func (p plan) check() error {
	switch {
	case p.rounds < 1 || p.warmUp < 1:
		return errors.New("-rounds and -warm-up must be at least 1")
	case p.window <= 0 || p.heavy <= 0 || p.critical < 0:
		return errors.New("-window and -heavy must be more than 0, -critical at least 0")
	case p.reserve < 1 || p.reserve > p.slots-2:
		return fmt.Errorf("-reserve %d is outside 1…%d, what -slots leave to it", p.reserve, p.slots-2)
	case !(p.perSecond > 0 && p.perSecond <= 10_000):
		return fmt.Errorf("-rate %g is not a number of jobs a second up to 10000", p.perSecond)
	case p.inUse() > float64(p.reserve)/2:
		return fmt.Errorf("%g jobs a second of %v take %.1f slots on average: at most half of the %d that -reserve leaves to them count as a load that fits",
			p.perSecond, p.critical, p.inUse(), p.reserve)
	}
	return nil
}

// inUse returns how many slots critical jobs take on average.
func (p plan) inUse() float64 { return p.perSecond * p.critical.Seconds() }
