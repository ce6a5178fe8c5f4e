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
)

func main() {
	bareIfAsked()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	removeProgram()
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulators:", err)
		os.Exit(1)
	}
}

// plan says what is measured and how often.
type plan struct {
	contenders  []contender
	works       []work
	connections []int
	rounds      int
	window      time.Duration
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	p := plan{}
	flags := flag.NewFlagSet("emulators", flag.ContinueOnError)
	who := flags.String("contenders", "azurite,memory,disk,bare", "which servers; the others are compared with the first")
	what := flags.String("work", "enqueue,drain500,drain5000", "the work: enqueue, or dequeue and delete with this many messages waiting")
	connections := flags.String("connections", "16,64", "numbers of connections, each with one request at a time")
	flags.IntVar(&p.rounds, "rounds", 3, "how often each is measured")
	flags.DurationVar(&p.window, "for", 2*time.Second, "minimum time of a measurement, not counting refills")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err1, err2, err3 error
	p.contenders, err1 = choose(*who, contenders)
	p.works, err2 = choose(*what, works)
	for one := range strings.SplitSeq(*connections, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < 1 {
			err3 = fmt.Errorf("%q is not a number of connections", one)
		}
		p.connections = append(p.connections, n)
	}
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	results, err := p.measure(ctx, progress)
	if err != nil {
		return err
	}
	return writeTable(out, results)
}

// choose returns the elements with these names.
func choose[T fmt.Stringer](names string, all []T) (found []T, err error) {
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(one T) bool { return one.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown %q: choose from %v", name, all)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// result has the samples of a kind of work with a number of connections: one of each contender in each
// round.
type result struct {
	work        work
	connections int
	contenders  []contender
	rounds      [][]sample
}

// measure lets the contenders take turns, so that other load on the machine affects all alike. Each
// measurement has a new server.
func (p plan) measure(ctx context.Context, progress io.Writer) ([]result, error) {
	var all []result
	for _, w := range p.works {
		for _, n := range p.connections {
			r := result{work: w, connections: n, contenders: p.contenders}
			for round := range p.rounds {
				_, _ = fmt.Fprintf(progress, "%v, %d connections, round %d of %d\n", w, n, round+1, p.rounds)
				var samples []sample
				for _, who := range p.contenders {
					one, err := p.once(ctx, who, w, n)
					if err != nil {
						return nil, fmt.Errorf("%v, %v, %d connections: %w", who, w, n, err)
					}
					samples = append(samples, one)
				}
				r.rounds = append(r.rounds, samples)
			}
			all = append(all, r)
		}
	}
	return all, nil
}

func (p plan) once(ctx context.Context, who contender, w work, connections int) (one sample, err error) {
	s, err := who.start()
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	return w.measure(ctx, s, connections, p.window)
}

func writeTable(out io.Writer, results []result) error {
	var b strings.Builder
	b.WriteString("| work | connections | server | messages/s | × first | server's processor a message |\n|---|---|---|---|---|---|\n")
	for _, r := range results {
		for i, who := range r.contenders {
			rate := r.median(func(all []sample) float64 { return all[i].perSecond() })
			ratio := r.median(func(all []sample) float64 { return all[i].perSecond() / all[0].perSecond() })
			used := r.median(func(all []sample) float64 {
				return float64(all[i].processor.Nanoseconds()) / 1e3 / float64(all[i].messages)
			})
			processor := "–"
			if used > 0 {
				processor = fmt.Sprintf("%.1f µs", used)
			}
			fmt.Fprintf(&b, "| %v | %d | %v | %.0f | %.1f | %s |\n", r.work, r.connections, who, rate, ratio, processor)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// median returns the median of a figure over the rounds.
func (r result) median(figure func([]sample) float64) float64 {
	var all []float64
	for _, round := range r.rounds {
		all = append(all, figure(round))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
