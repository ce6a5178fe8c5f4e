package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/agent"
	"github.com/millrace/millrace/agent/processes"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/internal/account"
	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/examples/internal/progress"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

const scaleHelp = `Usage: billing scale [flags]

Shows the agent at work: queues, initiator and controller in this process, and as many billing worker processes as
the agent decides: none at first. All days are shipped at once, workers come, the batches are in the books within the
SLA, and the workers go. Every decision is a line; a report and a picture are written. Ctrl-C ends all of it.

Flags:

` + generatorHelp + `                     (here 300000 records of 6 days, in items of 150 by default)
  -work TIME         how long a worker takes for each item, as if it asked a tariff service (default 120ms)
  -sla TIME          how long a batch may take from being handed over to being in the books (default 45s)
  -target TIME       in what time the agent wants a backlog to be gone (default 5s)
  -down-after TIME   how long fewer workers must have been enough before some go (default 3s)
  -max N             workers at most (default 10)
` + visibilityHelp + `  -short             end when everything is in the books. Without it, the program waits until the agent
                     has ended the last worker, more than a minute later: it averages arrivals over a minute
  -out DIR           the folder of the report and of scale.svg (default billing-scale)
`

// scale is the command scale. It is a [millrace.Runner].
type scale struct {
	usage
	most            int
	work, sla       time.Duration
	target, fewerIn time.Duration
	visibility      time.Duration
	out             string
	short           bool // do not wait until the agent has ended all workers
	show            *progress.Progress
	logger          *slog.Logger
	begun           time.Time
	workers         *processes.Processes
	stop            context.Context // ends with Halt
	halt            context.CancelFunc

	mu       sync.Mutex
	moments  []moment      // guarded by mu
	measured chan struct{} // has a value after a measurement
}

// moment is what was measured at one time.
type moment struct {
	agent.Decided
	workers processes.State
}

// scaleShow is the command scale.
func scaleShow(f *flag.FlagSet, show *progress.Progress) func(map[string]bool) (millrace.Runner, error) {
	s := &scale{show: show, logger: plainlog.New(show), begun: time.Now(), measured: make(chan struct{}, 1)}
	s.stop, s.halt = context.WithCancel(context.Background())
	s.flags(f)
	return func(given map[string]bool) (millrace.Runner, error) { return s, s.check(given) }
}

func (s *scale) flags(f *flag.FlagSet) {
	s.generatorFlags(f)
	s.days, s.group = 6, 150
	f.IntVar(&s.most, "max", 10, "")
	f.DurationVar(&s.work, "work", 120*time.Millisecond, "")
	f.DurationVar(&s.sla, "sla", 45*time.Second, "")
	f.DurationVar(&s.target, "target", 5*time.Second, "")
	f.DurationVar(&s.fewerIn, "down-after", 3*time.Second, "")
	f.DurationVar(&s.visibility, "visibility", 30*time.Second, "")
	f.BoolVar(&s.short, "short", false, "")
	f.StringVar(&s.out, "out", "billing-scale", "")
}

func (s *scale) check(given map[string]bool) error {
	if err := errors.Join(s.usage.check(given), checkSLA(s.sla), checkWork(s.work), checkVisibility(s.visibility)); err != nil {
		return err
	}
	if s.most < 1 || s.most > 100 {
		return cli.UsageErrorf("-max %d is outside 1…100", s.most)
	}
	for name, value := range map[string]time.Duration{"target": s.target, "down-after": s.fewerIn} {
		if value <= 0 {
			return cli.UsageErrorf("-%s %v must be positive", name, value)
		}
	}
	return nil
}

// Halt makes Run end without waiting for workers that finish their items. They have been told to end.
func (s *scale) Halt() { s.halt() }

// Run plays the flood.
func (s *scale) Run(ctx context.Context) error {
	err := onEmbedded(ctx, s.logger, func(at *embedded) error {
		p, err := s.play(ctx, at)
		if err != nil {
			return err
		}
		if !p.done {
			return errStopped
		}
		return s.conclude(ctx, at.books)
	})
	s.show.Close()
	if err != nil && ctx.Err() != nil { // errors after the interruption are its consequences
		return errStopped
	}
	return err
}

// play runs everything until the flood is over and the workers are gone. No worker outlives it.
func (s *scale) play(ctx context.Context, at *embedded) (p *premises, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s.workers, err = processes.New(processes.Options{
		Command: []string{self, "worker", "-work", s.work.String(), "-beacon", "500ms", "-visibility", s.visibility.String(), "-blobs", filepath.Join(at.folder, "blobs")},
		Env:     []string{account.Variable + "=" + at.account.Location()},
		Folder:  filepath.Join(at.folder, "workers"),
		Grace:   5 * grace,
		Output:  unusual{s.show},
		Logger:  s.logger,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.workers.Close(s.stop, true)) }()
	supervisor, err := s.agent(ctx, at.account)
	if err != nil {
		return nil, err
	}
	s.show.Say("%s; a worker takes %v for each item of %s", s.from(), s.work, cli.Plural(s.group, "record"))
	p = newPremises(&s.usage, s.show)
	p.before = func(ctx context.Context) { // the agent has seen twice that there is nothing to do
		_ = s.until(ctx, func() bool { return s.measurements() >= 2 })
	}
	p.after = func(ctx context.Context) error {
		return s.until(ctx, func() bool {
			state := s.workers.State()
			return s.short || state.Wanted == 0 && state.Draining == 0
		})
	}
	p.system, err = systemOn(at.account, at.blobs.Store, options{
		roles: initiator | controller, books: at.books, logger: s.logger,
		reported: func(b books.Batch) {
			p.reported(b)
			s.show.Say("%s  batch %s is in the books, %.1f s after it was handed over", s.clock(time.Now()), b.Name, b.Latency().Seconds())
		},
	})
	if err != nil {
		return nil, err
	}
	return p, millrace.Run(ctx, append(p.system.runners, supervisor, p)...)
}

// until waits until a condition holds, which is asked after each measurement.
func (s *scale) until(ctx context.Context, holds func() bool) error {
	for !holds() {
		select {
		case <-s.measured:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (s *scale) measurements() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.moments)
}

// clock returns the time since the beginning.
func (s *scale) clock(at time.Time) string { return fmt.Sprintf("%5.1f s", at.Sub(s.begun).Seconds()) }

// unusual shows the lines of workers, except for those that they always print.
type unusual struct{ show *progress.Progress }

func (u unusual) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "] worker: ") && !strings.Contains(line, "] batch ") {
			u.show.Say("worker %s", strings.TrimSuffix(line, "\n"))
		}
	}
	return len(text), nil
}

// agent returns the agent that decides how many workers there are.
func (s *scale) agent(ctx context.Context, a *account.Account) (*agent.Agent, error) {
	var queues []queue.Queue
	for _, name := range []string{workQueue, beaconsQueue} {
		q, err := a.Queue(name)
		if err == nil {
			err = q.Create(ctx, nil) // or it is missing until the first batch comes
		}
		if err != nil {
			return nil, err
		}
		queues = append(queues, q)
	}
	pool := agent.Pool{
		Name: "workers", Queues: queues[:1], Beacons: queues[1:], Actuator: s.workers,
		Policy: scaling.Policy{
			ToZero: true, Max: s.most, Target: s.target, Start: time.Second, DownAfter: s.fewerIn,
			Slots: workerSlots(), Handling: collecting + together*s.work,
		},
	}
	return agent.New([]agent.Pool{pool}, &agent.Options{Interval: time.Second, Wakeups: a.Wakeups(), Logger: s.logger, OnDecision: s.decided})
}

// decided keeps a decision, and shows it if it changes something.
func (s *scale) decided(d agent.Decided) {
	s.mu.Lock()
	s.moments = append(s.moments, moment{d, s.workers.State()})
	s.mu.Unlock()
	select {
	case s.measured <- struct{}{}:
	default:
	}
	switch {
	case d.Err != nil:
		s.show.Say("%s  %s, which failed: %v", s.clock(d.Decision.At), d.Decision.Why, d.Err)
	case d.Changes():
		s.show.Say("%s  %s", s.clock(d.Decision.At), d.Decision.Why)
	}
}

// conclude writes the report and the picture.
func (s *scale) conclude(ctx context.Context, kept *books.Books) error {
	made, err := writeReport(ctx, kept, s.out, s.sla)
	if err != nil {
		return err
	}
	picture := filepath.Join(s.out, "scale.svg")
	if err := writeFile(ctx, picture, s.picture); err != nil {
		return err
	}
	s.show.Close()
	made.print(s.show.Stdout())
	most := 0
	for _, m := range s.moments {
		most = max(most, m.workers.Running)
	}
	end := s.workers.State() // after Close
	line(s.show.Stdout(), "workers", "0 at first, %d at most, %d at the end; %d ended by themselves, %d were killed", most,
		end.Running+end.Waiting+end.Draining, end.Restarts, end.Killed)
	cli.Say(s.show.Stdout(), "The picture is in %s\n", picture)
	if made.Late > 0 {
		return fmt.Errorf("%s missed the SLA of %v", cli.Plural(made.Late, "batch"), s.sla)
	}
	return nil
}

// series is a line of a chart.
type series struct {
	name, color string
	value       func(moment) float64
}

// picture draws two charts above each other, over the seconds of the run: items and workers.
func (s *scale) picture(w io.Writer) error {
	var b bytes.Buffer
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 460" font-family="sans-serif" font-size="13" role="img" aria-label="Items and workers over time"><rect width="900" height="460" fill="#fff"/>` + "\n")
	s.chart(&b, 34, "items", series{"wait for a worker", "#d97706", func(m moment) float64 { return float64(m.Sample.Visible.Or(0)) }},
		series{"are in work", "#16a34a", func(m moment) float64 { return float64(m.Sample.InWork.Or(0)) }})
	s.chart(&b, 254, "workers", series{"processes", "#94a3b8", func(m moment) float64 { return float64(m.workers.Running + m.workers.Draining) }},
		series{"wanted by the agent", "#7c3aed", func(m moment) float64 { return float64(m.Decision.Instances) }})
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// chart draws a chart with its top at y = top.
func (s *scale) chart(b *bytes.Buffer, top float64, what string, lines ...series) {
	const left, right, height = 64.0, 876.0, 170.0
	seconds := func(m moment) float64 { return m.Sample.At.Sub(s.begun).Seconds() }
	end, highest := seconds(s.moments[len(s.moments)-1]), 1.0
	for _, m := range s.moments {
		highest = max(highest, lines[0].value(m), lines[1].value(m))
	}
	step := niceStep(highest / 4)
	highest = step * math.Ceil(highest/step)
	x := func(second float64) float64 { return left + (right-left)*second/end }
	y := func(value float64) float64 { return top + height*(1-value/highest) }
	text := func(x, y float64, anchor, what string) {
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="#475569">%s</text>`+"\n", x, y, anchor, what)
	}
	text(left, top-8, "start", what)
	for v := 0.0; v <= highest; v += step {
		fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%[3].1f" stroke="#cbd5e1"/>`+"\n", left, right, y(v))
		text(left-8, y(v)+4, "end", fmt.Sprintf("%g", v))
	}
	for v := 0.0; v <= end; v += niceStep(end / 9) {
		text(x(v), top+height+16, "middle", fmt.Sprintf("%g s", v))
	}
	for i, l := range lines {
		at := left + 300 + 200*float64(i)
		text(at+20, top-8, "start", l.name)
		fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="14" height="4" fill="%s"/><polyline fill="none" stroke="%[3]s" stroke-width="2" points="`, at, top-14, l.color)
		for _, m := range s.moments {
			fmt.Fprintf(b, "%.1f,%.1f ", x(seconds(m)), y(l.value(m)))
		}
		b.WriteString(`"/>` + "\n")
	}
}

// niceStep returns the least of 1, 2, 5, 10, 20 … that is not below a value.
func niceStep(value float64) float64 {
	for unit := 1.0; ; unit *= 10 {
		for _, step := range []float64{unit, 2 * unit, 5 * unit} {
			if step >= value {
				return step
			}
		}
	}
}
