package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// load measures the cost of a message for a consumer and the throughput, in cells: every combination of
// concurrency, handler and latency. Processor time is that of this process alone, so it is meaningful even if
// client and server share a machine; messages a second are then those of both together.
type load struct {
	turns
	handlers    []time.Duration
	latencies   []time.Duration
	concurrency []int
	contenders  []contender
	only        *regexp.Regexp // of cells
	warmUp      time.Duration
	window      time.Duration
	size        int
}

func (l *load) flags(f *flag.FlagSet) {
	l.turns.flags(f)
	several(f, &l.handlers, []time.Duration{0, time.Millisecond, 20 * time.Millisecond}, orNothing, "handlers", "how long a handler waits")
	several(f, &l.latencies, []time.Duration{0, 10 * time.Millisecond}, orNothing, "latencies", "how long the service takes over a request")
	several(f, &l.concurrency, []int{256, 512}, positive, "concurrency", "how many handlers run at once")
	several(f, &l.contenders, contenders[:3], named(contenders), "contenders", fmt.Sprint("which contenders: some of ", contenders))
	one(f, &l.only, regexp.MustCompile(""), regexp.Compile, "only", "a `pattern` that a cell must match, such as \"c512/handler20ms/latency10ms\"")
	one(f, &l.window, time.Second, lasting, "for", "how long a cell is measured")
	one(f, &l.warmUp, 400*time.Millisecond, orNothing, "warm-up", "how long it runs before that")
	one(f, &l.size, 1024, between(1, 48<<10, strconv.Atoi), "size", "bytes of a message")
}

func (l *load) check() error {
	if len(l.cells()) == 0 {
		return fmt.Errorf("-only %q: no cell matches", l.only)
	}
	return nil
}

// cell is one configuration, which is measured for every contender.
type cell struct {
	concurrency int
	handler     time.Duration
	latency     time.Duration
}

func (c cell) String() string {
	return fmt.Sprintf("c%d/handler%v/latency%v", c.concurrency, c.handler, c.latency)
}

// bound returns how many messages a second are possible if a slot is occupied during handler and
// delete, and nothing but their waiting takes time; 0 if the processor is the bound.
func (c cell) bound() float64 {
	if c.handler < 20*time.Millisecond {
		return 0
	}
	return float64(c.concurrency) / (c.handler + c.latency).Seconds()
}

func (l *load) cells() (all []cell) {
	for _, concurrency := range l.concurrency {
		for _, handler := range l.handlers {
			for _, latency := range l.latencies {
				if c := (cell{concurrency, handler, latency}); l.only.MatchString(c.String()) {
					all = append(all, c)
				}
			}
		}
	}
	return all
}

// loadTurn is a contender in a cell.
type loadTurn struct {
	cell
	who     contender
	first   *loadTurn // of its cell
	samples samples
}

func (t *loadTurn) String() string { return fmt.Sprintf("%v, %v", t.cell, t.who) }

func (l *load) run(ctx context.Context, h *harness) (*report, error) {
	s, err := startServer(serverOptions{Delays: l.latencies})
	if err != nil {
		return nil, err
	}
	var all []*loadTurn
	for _, c := range l.cells() {
		first := len(all)
		for _, who := range l.contenders {
			all = append(all, &loadTurn{cell: c, who: who})
			all[len(all)-1].first = all[first]
		}
	}
	err = takeTurns(ctx, h, l.rounds, all, func(t *loadTurn, _ int) error {
		taken, err := l.once(ctx, s, t)
		t.samples = append(t.samples, taken)
		return err
	})
	return &report{head: h.machine + ".\n\n", table: loadTable(all)}, errors.Join(err, s.stop())
}

// full is how many messages are kept in the queue, more than a contender takes between two checks.
const full = 8192

// once measures a contender once, on its own queue.
func (l *load) once(ctx context.Context, s *server, t *loadTurn) (taken sample, err error) {
	name := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := s.ask(serverOrder{Fill: name, Messages: full + t.concurrency, Size: l.size}, nil); err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, s.ask(serverOrder{Drop: name}, nil)) }()
	runtime.GC() // so that no contender pays for another's garbage
	location := s.started.Locations[slices.Index(l.latencies, t.latency)]
	r, err := t.who.start(ctx, consumption{location, name, t.concurrency, t.handler})
	if err != nil {
		return taken, err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	waiting.For(l.warmUp, ctx.Done())
	// Until all connections are open: over TLS each begins with a handshake, which costs as much as many messages.
	for begun := time.Now(); r.done() < int64(8*t.concurrency) && time.Since(begun) < 20*time.Second && ctx.Err() == nil; {
		waiting.For(20*time.Millisecond, ctx.Done())
	}
	before, err := r.look()
	if err != nil {
		return taken, err
	}
	waiting.For(l.window, ctx.Done())
	after, err := r.look()
	if taken = after.minus(before); err == nil && taken.messages == 0 {
		err = fmt.Errorf("no message was handled in %v", l.window)
	}
	return taken, err
}

// look reads all counters at nearly the same instant.
func (r *running) look() (sample, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	used, err := processorTime()
	return sample{messages: r.done(), wall: time.Since(start), processor: used, mallocs: memory.Mallocs}, err
}

var start = time.Now()

// loadTable returns the results as Markdown. Ratios are to the first contender, in the same round.
func loadTable(all []*loadTurn) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| concurrency | handler | latency | bound/s | contender | messages/s | of the bound | × %s | messages per client-processor-second | × %[1]s | allocations a message |\n"+
		"|---|---|---|---|---|---|---|---|---|---|---|\n", all[0].who)
	for _, t := range all {
		bound, share, rate := "–", "–", t.samples.median(sample.perSecond)
		if most := t.bound(); most > 0 {
			bound, share = fmt.Sprintf("%.0f", most), fmt.Sprintf("%.2f", rate/most)
		}
		fmt.Fprintf(&b, "| %d | %v | %v | %s | %v | %.0f | %s | %.2f | %.0f | %.2f | %.0f |\n",
			t.concurrency, t.handler, t.latency, bound, t.who, rate, share,
			t.samples.times(t.first.samples, sample.perSecond),
			t.samples.median(sample.perProcessorSecond), t.samples.times(t.first.samples, sample.perProcessorSecond),
			t.samples.median(func(s sample) float64 { return s.perMessage(float64(s.mallocs)) }))
	}
	return b.String()
}
