package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/table"
)

// work is one kind of call.
type work struct {
	name string
	call int // how many entities one call concerns
	do   func(m *measured, ctx context.Context) (entities int, err error)
}

// works are measured in this order: deletions come last, of what was inserted before.
var works = []work{
	{"insert", 1, (*measured).insertOne},
	{"insert", groupSize, (*measured).insertGroup},
	{"point read", 1, (*measured).getOne},
	{"page", pageSize, (*measured).readPage},
	{"delete", 1, (*measured).removeOne},
	{"delete", groupSize, (*measured).removeGroup},
}

// measured is a table of a contender. Its entities have the numbers from removed to inserted.
type measured struct {
	target
	inserted, removed atomic.Int64 // the next ones
	stored            int64        // all up to there are stored when reads begin
}

// errUsedUp means that all entities were deleted.
var errUsedUp = errors.New("there are no entities left")

func (m *measured) insertSome(ctx context.Context, n int) (int, error) {
	end := int(m.inserted.Add(int64(n)))
	return n, m.insert(ctx, entitiesFrom(end-n, n))
}

func (m *measured) insertOne(ctx context.Context) (int, error)   { return m.insertSome(ctx, 1) }
func (m *measured) insertGroup(ctx context.Context) (int, error) { return m.insertSome(ctx, groupSize) }

func (m *measured) getOne(ctx context.Context) (int, error) {
	return 1, m.get(ctx, keyOf(int(rand.Int64N(m.stored))))
}

// readPage reads a whole page of a partition.
func (m *measured) readPage(ctx context.Context) (int, error) {
	from := int(rand.Int64N(m.stored/pageSize)) * pageSize
	n, err := m.page(ctx, keyOf(from))
	if err == nil && n != pageSize {
		err = fmt.Errorf("a page from %v has %d entities, want %d", keyOf(from), n, pageSize)
	}
	return n, err
}

func (m *measured) removeSome(ctx context.Context, n int) (int, error) {
	end := m.removed.Add(int64(n))
	if end > m.inserted.Load() {
		return 0, errUsedUp
	}
	keys := make([]table.Key, n)
	for i := range keys {
		keys[i] = keyOf(int(end) - n + i)
	}
	return n, m.remove(ctx, keys)
}

func (m *measured) removeOne(ctx context.Context) (int, error)   { return m.removeSome(ctx, 1) }
func (m *measured) removeGroup(ctx context.Context) (int, error) { return m.removeSome(ctx, groupSize) }

// align makes the next group begin at a multiple of its size, so that it lies in one partition.
func (m *measured) align(ctx context.Context) error {
	for m.inserted.Load()%groupSize != 0 {
		if _, err := m.insertOne(ctx); err != nil {
			return err
		}
	}
	for m.removed.Load()%groupSize != 0 {
		if _, err := m.removeOne(ctx); err != nil && !errors.Is(err, errUsedUp) {
			return err
		}
	}
	return nil
}

// results are the figures of a run.
type results struct {
	plan   plan
	absent []string           // why a contender was left out
	rates  map[cell][]float64 // entities a second, one of each round
	many   *manyResult        // nil if it was not measured
}

// cell is one figure of the table.
type cell struct {
	contender string
	callers   int
	work      int // index of works
}

// measure lets the contenders take turns, so that other load on the machine affects all alike.
func (p plan) measure(ctx context.Context, progress io.Writer) (*results, error) {
	r := &results{rates: map[cell][]float64{}}
	for round := range p.rounds {
		for _, callers := range p.callers {
			for _, who := range slices.Clone(p.contenders) {
				_, _ = fmt.Fprintf(progress, "round %d of %d, %d callers, %s\n", round+1, p.rounds, callers, who.name)
				err := p.once(ctx, r, who, callers)
				if errors.Is(err, errAbsent) {
					_, _ = fmt.Fprintf(progress, "LEFT OUT: %v\n", err)
					r.absent = append(r.absent, err.Error())
					p.contenders = slices.DeleteFunc(p.contenders, func(c contender) bool { return c.name == who.name })
					continue
				}
				if err != nil {
					return nil, fmt.Errorf("%s, %d callers: %w", who.name, callers, err)
				}
			}
		}
	}
	r.plan = p
	if p.many == 0 {
		return r, nil
	}
	var err error
	r.many, err = p.measureMany(ctx, progress)
	return r, err
}

// once measures all works on a new table of a contender.
func (p plan) once(ctx context.Context, r *results, who contender, callers int) (err error) {
	dir, err := os.MkdirTemp(p.dir, who.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	t, err := who.open(dir)
	if err != nil {
		return err
	}
	m := &measured{target: t}
	defer func() { err = errors.Join(err, t.close()) }()
	if err := m.fill(ctx, p.stored); err != nil {
		return err
	}
	m.stored = m.inserted.Load()
	for i, w := range works {
		rate, err := m.rate(ctx, w, callers, p.span)
		if err != nil {
			return fmt.Errorf("%s, %d a call: %w", w.name, w.call, err)
		}
		c := cell{who.name, callers, i}
		r.rates[c] = append(r.rates[c], rate)
		if err := m.align(ctx); err != nil {
			return err
		}
	}
	return nil
}

// fill stores entities in groups.
func (m *measured) fill(ctx context.Context, n int) error {
	return concurrently(16, func() error {
		for m.inserted.Load() < int64(n) {
			if _, err := m.insertGroup(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// rate returns how many entities a second the calls concern, for a span of time or until all were deleted.
func (m *measured) rate(ctx context.Context, w work, callers int, span time.Duration) (float64, error) {
	var entities atomic.Int64
	begun := time.Now()
	err := concurrently(callers, func() error {
		for time.Since(begun) < span {
			n, err := w.do(m, ctx)
			if errors.Is(err, errUsedUp) {
				return nil
			}
			if err != nil {
				return err
			}
			entities.Add(int64(n))
		}
		return nil
	})
	return float64(entities.Load()) / time.Since(begun).Seconds(), err
}

// concurrently runs a function several times and returns all of its errors.
func concurrently(n int, do func() error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// median returns the median of a cell over the rounds; 0 if it was not measured.
func (r *results) median(c cell) float64 {
	all := slices.Sorted(slices.Values(r.rates[c]))
	n := len(all)
	if n == 0 {
		return 0
	}
	return (all[(n-1)/2] + all[n/2]) / 2
}
