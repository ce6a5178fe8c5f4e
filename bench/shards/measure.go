package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/internal/processor"
	"github.com/millrace/millrace/internal/waiting"
)

// plan says what is measured.
type plan struct {
	shards []int // how many queues
	limit  int   // of each queue, messages a second; 0 for none
	window int   // jobs under way for each queue
	rounds int
	warmUp time.Duration
	span   time.Duration
}

// sample is one measurement.
type sample struct {
	jobs      int64 // sent, handled and deleted
	wall      time.Duration
	processor time.Duration // of both processes
	requests  int64
	limited   int64 // requests that the limit refused
}

func (s sample) perSecond() float64 { return float64(s.jobs) / s.wall.Seconds() }

// used returns the part of all processors that was used.
func (s sample) used() float64 {
	return s.processor.Seconds() / (s.wall.Seconds() * float64(runtime.NumCPU()))
}

// requestsPerJob returns how many requests were sent for each job.
func (s sample) requestsPerJob() float64 { return float64(s.requests) / float64(max(s.jobs, 1)) }

// limitedPerJob returns how many requests were refused for each job.
func (s sample) limitedPerJob() float64 { return float64(s.limited) / float64(max(s.jobs, 1)) }

// result has the samples of one number of shards.
type result struct {
	shards int
	rounds []sample
}

// measure measures each number of shards in every round, so that other load on the machine affects all alike.
func (p plan) measure(ctx context.Context, s *server, progress io.Writer) ([]*result, error) {
	var results []*result
	for _, k := range p.shards {
		results = append(results, &result{shards: k})
	}
	for round := range p.rounds {
		for _, r := range results {
			_, _ = fmt.Fprintf(progress, "round %d of %d, %d shards for %v\n", round+1, p.rounds, r.shards, p.span)
			taken, err := p.once(ctx, s, r.shards)
			if err != nil {
				return nil, fmt.Errorf("%d shards: %w", r.shards, err)
			}
			r.rounds = append(r.rounds, taken)
		}
	}
	return results, nil
}

// once measures one number of shards once, on new queues.
func (p plan) once(ctx context.Context, s *server, k int) (sample, error) {
	w, err := startWork(ctx, s.location, k, p.window)
	if err != nil {
		return sample{}, err
	}
	waiting.For(p.warmUp, ctx.Done())
	before, err := look(w, s)
	if err != nil {
		return sample{}, errors.Join(err, w.stop())
	}
	waiting.For(p.span, ctx.Done())
	for begun := time.Now(); w.done() == before.jobs && time.Since(begun) < patience; {
		if !waiting.For(10*time.Millisecond, ctx.Done()) {
			break
		}
	}
	after, err := look(w, s)
	if err = errors.Join(err, w.stop(), ctx.Err()); err != nil {
		return sample{}, err
	}
	taken := sample{after.jobs - before.jobs, after.wall - before.wall, after.processor - before.processor, after.requests - before.requests, after.limited - before.limited}
	if taken.jobs == 0 {
		return sample{}, fmt.Errorf("no job was handled in %v", taken.wall)
	}
	return taken, nil
}

// patience is how long a measurement goes on beyond its span while no job was handled, as on a machine that
// has much else to do.
const patience = time.Minute

var start = time.Now()

// look reads all counters at nearly the same instant.
func look(w *work, s *server) (sample, error) {
	a, err := s.look()
	if err != nil {
		return sample{}, err
	}
	own, err := processor.Time()
	return sample{w.done(), time.Since(start), own + a.Processor, a.Requests, a.Limited}, err
}

// median returns the median over the rounds of a figure of the samples.
func (r *result) median(figure func(sample) float64) float64 {
	var all []float64
	for _, s := range r.rounds {
		all = append(all, figure(s))
	}
	slices.Sort(all)
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}
