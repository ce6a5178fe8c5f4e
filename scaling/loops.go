package scaling

import (
	"cmp"
	"slices"
)

// Load is what a listener knows when it asks how many loops to run.
type Load struct {
	// Depth is the approximate number of messages in the queue, those being
	// handled included. It is what the source's rules weigh (B-14).
	Depth int64

	// Loops is how many loops run now.
	Loops int

	// Running is how many handlers run now.
	Running int

	// BatchSize is how many messages one loop takes at most in one go.
	BatchSize int
}

// Loops says how many loops a load deserves (L-30). The listener keeps the
// answer within its bounds. It is called from several goroutines and should not
// block.
type Loops func(Load) int

// PerBatch is the default rule: as many loops as take the whole depth in one go,
// ceil(Depth / BatchSize), and at least one.
func PerBatch(l Load) int {
	if l.Depth <= 0 || l.BatchSize <= 0 {
		return 1
	}
	// Bounded before converting: the depth of a queue is not bounded by an int.
	loops := (l.Depth-1)/int64(l.BatchSize) + 1
	return int(min(loops, 1<<30))
}

// Step is one row of a [Table].
type Step struct {
	Below int64 // the depth under which this row holds
	Loops int   // how many loops it then takes
}

// Table returns a rule that looks the depth up: the row with the smallest Below
// that is above the depth answers, or otherwise if there is none. An empty queue
// takes one loop: in the source the row for it could not be reached. The
// steps may come in any order.
func Table(otherwise int, steps ...Step) Loops {
	steps = slices.SortedFunc(slices.Values(steps), func(a, b Step) int { return cmp.Compare(a.Below, b.Below) })
	return func(l Load) int {
		if l.Depth <= 0 {
			return 1
		}
		for _, s := range steps {
			if l.Depth < s.Below {
				return s.Loops
			}
		}
		return otherwise
	}
}

// Stepped is the source's sample rule (L-29): under 100 messages ten loops, under
// 1,000 fifty, from there on a hundred.
func Stepped() Loops {
	return Table(100, Step{Below: 100, Loops: 10}, Step{Below: 1000, Loops: 50})
}
