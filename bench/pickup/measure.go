package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/millrace/millrace/bench/internal/schedule"
)

// plan says what is measured.
type plan struct {
	slots, reserve int
	heavy          time.Duration // how long a heavy job takes
	critical       time.Duration // and a critical one
	perSecond      float64       // critical jobs
	window         time.Duration // in which they are sent
	rounds         int
	warmUp         int // critical jobs before it, which open the connections
	seed           uint64
}

// row is one way to share the slots, with the flood or without.
type row struct {
	reserve bool // for the critical queue; or else weights alone
	flood   bool
}

func (r row) String() string {
	how, load := "weights alone", "nothing else"
	if r.reserve {
		how = "a reserve"
	}
	if r.flood {
		load = "a flood"
	}
	return how + ", " + load
}

// rows are measured in this order in each round.
var rows = []row{{true, false}, {true, true}, {false, false}, {false, true}}

// result is what was measured of one row, in all rounds.
type result struct {
	row
	pickups []time.Duration // from the return of Send to the first line of the handler
	late    []time.Duration // Send was called after its instant
	heavy   int64           // heavy jobs that were handled meanwhile
}

// measure lets the rows take turns, so that other load on the machine affects all alike.
func (p plan) measure(ctx context.Context, connection string, progress io.Writer) ([]*result, error) {
	var results []*result
	for _, r := range rows {
		results = append(results, &result{row: r})
	}
	for round := range p.rounds {
		for _, r := range results {
			_, _ = fmt.Fprintf(progress, "round %d of %d, %v\n", round+1, p.rounds, r.row)
			if err := p.once(ctx, connection, r, p.seed+uint64(round)); err != nil {
				return nil, fmt.Errorf("%v: %w", r.row, err)
			}
		}
	}
	for _, r := range results {
		slices.Sort(r.pickups)
		slices.Sort(r.late)
	}
	return results, nil
}

// drain is how long the last jobs may take.
const drain = 30 * time.Second

// once measures one row on queues of its own, and adds to its result.
func (p plan) once(ctx context.Context, connection string, r *result, seed uint64) (err error) {
	due := schedule.Random(p.perSecond, p.window, seed)
	w, err := startWorker(ctx, p, connection, r.row, p.warmUp+len(due))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if _, err := w.send(ctx, 0, make([]time.Duration, p.warmUp)); err != nil {
		return err
	}
	if err := w.await(ctx, p.warmUp); err != nil {
		return err
	}
	if r.flood {
		if err := w.flood(ctx); err != nil {
			return err
		}
	}
	before := w.heavy.State().Succeeded
	sent, err := w.send(ctx, p.warmUp, due)
	if err != nil {
		return err
	}
	r.heavy += w.heavy.State().Succeeded - before
	if r.flood && !w.flooded() {
		return errors.New("the heavy queue was empty before the end: the flood was too small")
	}
	if err := w.await(ctx, p.warmUp+len(due)); err != nil {
		return err
	}
	r.late = append(r.late, sent.late...)
	for i, returned := range sent.returned {
		r.pickups = append(r.pickups, w.startOf(p.warmUp+i).Sub(returned))
	}
	return nil
}
