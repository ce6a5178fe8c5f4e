package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/wakeup"

	"github.com/millrace/millrace/bench/internal/schedule"
)

// plan says what is measured.
type plan struct {
	transports []transport
	rates      []rate
	rounds     int
	trips      int // round trips before each measurement, at most
	warmUp     int // jobs before it, which open the connections
	seed       uint64
}

// rate is how many jobs a second are sent, and for how long.
type rate struct {
	perSecond float64
	window    time.Duration
}

// pace returns the mean time between two jobs.
func (r rate) pace() time.Duration { return time.Duration(float64(time.Second) / r.perSecond) }

// result is what was measured of one transport at one rate, in all rounds.
type result struct {
	rate      rate
	transport transport
	waits     []time.Duration // from the return of Send to the first line of the handler
	late      []time.Duration // Send was called after its instant
	trips     []time.Duration // of a dequeue of one message
}

// measure lets the transports take turns, so that other load on the machine affects all alike.
func (p plan) measure(ctx context.Context, at servers, progress io.Writer) ([]*result, error) {
	var results []*result
	for _, r := range p.rates {
		for _, t := range p.transports {
			results = append(results, &result{rate: r, transport: t})
		}
	}
	for round := range p.rounds {
		for _, r := range results {
			_, _ = fmt.Fprintf(progress, "round %d of %d, %g a second for %v, %v\n", round+1, p.rounds, r.rate.perSecond, r.rate.window, r.transport)
			if err := p.once(ctx, at, r, p.seed+uint64(round)); err != nil {
				return nil, fmt.Errorf("%v, %g a second: %w", r.transport, r.rate.perSecond, err)
			}
		}
	}
	for _, r := range results {
		slices.Sort(r.waits)
		slices.Sort(r.late)
		slices.Sort(r.trips)
	}
	return results, nil
}

// drain is how long the last jobs may take.
const drain = 30 * time.Second

// once measures one transport at one rate, on a queue of its own, and adds to the result.
func (p plan) once(ctx context.Context, at servers, r *result, seed uint64) (err error) {
	due := schedule.Random(r.rate.perSecond, r.rate.window, seed)
	a := assignment{
		Servers: at, Transport: r.transport.name, Queue: fmt.Sprintf("latency-%d", time.Now().UnixNano()),
		Jobs: p.warmUp + len(due), bus: new(wakeup.Bus),
	}
	s, err := newSender(ctx, a, r.transport)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	c, err := r.transport.consume(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	if _, err := s.send(ctx, 0, make([]time.Duration, p.warmUp)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, drain)
	defer cancel()
	if _, err := c.starts(limited, p.warmUp); err != nil {
		return err
	}
	trips, err := c.roundTrips(ctx, min(p.trips, len(due)), r.rate.pace())
	if err != nil {
		return err
	}
	sent, err := s.send(ctx, p.warmUp, due)
	if err != nil {
		return err
	}
	limited, cancel = context.WithTimeout(ctx, drain)
	defer cancel()
	begun, err := c.starts(limited, a.Jobs)
	if err != nil {
		return err
	}
	r.trips, r.late = append(r.trips, trips...), append(r.late, sent.late...)
	for i, returned := range sent.returned {
		r.waits = append(r.waits, time.Duration(begun[p.warmUp+i]-returned))
	}
	return nil
}
