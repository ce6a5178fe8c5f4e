package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/internal/processor"
	"github.com/millrace/millrace/internal/waiting"
)

// plan says what is measured and how often.
type plan struct {
	handlers    []time.Duration
	latencies   []time.Duration
	secure      []bool // whether over TLS
	concurrency []int
	contenders  []contender
	only        *regexp.Regexp // of cells
	rounds      int
	warmUp      time.Duration
	window      time.Duration
	size        int
	profile     io.Writer // for a CPU profile; nil for none
}

// cell is one configuration, which is measured for every contender.
type cell struct {
	concurrency int
	handler     time.Duration
	latency     time.Duration
	secure      bool // over TLS
}

func (c cell) String() string {
	return fmt.Sprintf("c%d/handler%v/latency%v/%s", c.concurrency, c.handler, c.latency, c.wire())
}

// wire returns what requests are sent over.
func (c cell) wire() string {
	if c.secure {
		return "TLS"
	}
	return "TCP"
}

func (c cell) endpoint() endpoint { return endpoint{c.latency, c.secure} }

// bound returns how many messages a second are possible if a slot is occupied during handler and
// delete, and nothing but their waiting takes time.
func (c cell) bound() float64 {
	return float64(c.concurrency) / (c.handler + c.latency).Seconds()
}

// waiting reports whether a cell is bound by waiting rather than by the processor.
func (c cell) waiting() bool { return c.handler >= 20*time.Millisecond }

func (p plan) cells() []cell {
	var all []cell
	for _, concurrency := range p.concurrency {
		for _, handler := range p.handlers {
			for _, latency := range p.latencies {
				for _, secure := range p.secure {
					if c := (cell{concurrency, handler, latency, secure}); p.only == nil || p.only.MatchString(c.String()) {
						all = append(all, c)
					}
				}
			}
		}
	}
	return all
}

// endpoints returns the endpoints that the server must have.
func (p plan) endpoints() []endpoint {
	var all []endpoint
	for _, latency := range p.latencies {
		for _, secure := range p.secure {
			all = append(all, endpoint{latency, secure})
		}
	}
	return all
}

// sample is a measurement of one contender in one window.
type sample struct {
	messages  int64
	wall      time.Duration
	processor time.Duration
	mallocs   uint64
	heldBack  int64
}

func (s sample) perSecond() float64          { return float64(s.messages) / s.wall.Seconds() }
func (s sample) perProcessorSecond() float64 { return float64(s.messages) / s.processor.Seconds() }

// result has all samples of a cell: one of each contender in each round.
type result struct {
	cell       cell
	contenders []contender
	rounds     [][]sample // by round and contender
}

// measure runs every contender once in every cell and round. They take turns, so that other load on the
// machine affects all alike.
func (p plan) measure(ctx context.Context, s *server, progress func(string)) ([]result, error) {
	var results []result
	for _, c := range p.cells() {
		results = append(results, result{cell: c, contenders: p.contenders})
	}
	if p.profile != nil {
		if err := pprof.StartCPUProfile(p.profile); err != nil {
			return nil, err
		}
		defer pprof.StopCPUProfile()
	}
	for round := range p.rounds {
		for i := range results {
			r := &results[i]
			progress(fmt.Sprintf("round %d of %d, %v\n", round+1, p.rounds, r.cell))
			var samples []sample
			load := 0.0 // of the first contender
			for _, who := range p.contenders {
				taken, err := p.once(ctx, s, r.cell, who, load)
				if err != nil {
					return nil, fmt.Errorf("%v in %v: %w", who, r.cell, err)
				}
				samples = append(samples, taken)
				load = samples[0].perSecond()
			}
			r.rounds = append(r.rounds, samples)
		}
	}
	return results, nil
}

// full is how many messages are kept in the queue, more than a contender takes between two checks.
const full = 8192

// once measures one contender once, on its own queue. The load is that of the first one, messages a second.
func (p plan) once(ctx context.Context, s *server, c cell, who contender, load float64) (sample, error) {
	queue := fmt.Sprintf("bench-%d", time.Now().UnixNano())
	if err := s.keepFull(queue, full+c.concurrency, p.size); err != nil {
		return sample{}, err
	}
	defer func() { _ = s.drop(queue) }() // if the server has died, the window has failed already
	runtime.GC()                         // so that no contender pays for another's garbage
	r, err := who.start(ctx, job{location: s.locations[c.endpoint()], queue: queue, concurrency: c.concurrency, handler: c.handler, load: load})
	if err != nil {
		return sample{}, err
	}
	waiting.For(p.warmUp, ctx.Done())
	opened(ctx, r, c)
	before, err := look(r)
	if err == nil {
		waiting.For(p.window, ctx.Done())
		var after sample
		if after, err = look(r); err == nil {
			before = after.minus(before)
		}
	}
	if stopped := r.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && before.messages == 0 {
		err = fmt.Errorf("no message was handled in %v", p.window)
	}
	return before, err
}

// opened waits until enough messages are done for all connections to be open: over TLS each begins with
// a handshake, which costs as much as many messages.
func opened(ctx context.Context, r *running, c cell) {
	for begin := time.Now(); r.done() < int64(8*c.concurrency) && time.Since(begin) < 20*time.Second && ctx.Err() == nil; {
		waiting.For(20*time.Millisecond, ctx.Done())
	}
}

// look reads all counters at nearly the same instant.
func look(r *running) (sample, error) {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	used, err := processor.Time()
	now := sample{messages: r.done(), wall: time.Since(start), processor: used, mallocs: memory.Mallocs}
	if r.heldBack != nil {
		now.heldBack = r.heldBack()
	}
	return now, err
}

var start = time.Now()

func (s sample) minus(o sample) sample {
	return sample{s.messages - o.messages, s.wall - o.wall, s.processor - o.processor, s.mallocs - o.mallocs, s.heldBack - o.heldBack}
}

// median returns the median over the rounds of a figure that worth computes from a contender's sample
// and the first contender's.
func (r result) median(who int, worth func(own, first sample) float64) float64 {
	var all []float64
	for _, samples := range r.rounds {
		all = append(all, worth(samples[who], samples[0]))
	}
	slices.Sort(all)
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}
