// Package schedule says when the jobs of a benchmark are sent.
package schedule

import (
	"math/rand/v2"
	"time"
)

// Random returns when jobs are due after the start of a window: at random instants, so many a second on
// average, at least one. It depends only on its arguments.
func Random(perSecond float64, window time.Duration, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	var due []time.Duration
	for at := 0.0; ; {
		at += random.ExpFloat64() / perSecond
		next := time.Duration(at * float64(time.Second))
		if next >= window && len(due) > 0 {
			return due
		}
		due = append(due, min(next, window))
	}
}
