package scaling

import (
	"cmp"
	"slices"
)

// Load is the input of a [Loops] function.
type Load struct {
	// Depth is the approximate number of messages in the queue, including those being handled.
	Depth int64

	// Loops is the number of loops running.
	Loops int

	// Running is the number of handlers running.
	Running int

	// BatchSize is how many messages one loop takes at most in one dequeue.
	BatchSize int
}

// Loops returns how many loops a load calls for. The listener keeps the result within its
// bounds. It is called concurrently and should not block.
type Loops func(Load) int

// PerBatch is the default rule: as many loops as take the whole depth in one dequeue each,
// ceil(Depth / BatchSize), and at least one.
func PerBatch(l Load) int {
	if l.Depth <= 0 || l.BatchSize <= 0 {
		return 1
	}
	// Clamped before the conversion: a depth may exceed an int.
	loops := (l.Depth-1)/int64(l.BatchSize) + 1
	return int(min(loops, 1<<30))
}

// Step is one row of a [Table].
type Step struct {
	Below int64 // the row applies below this depth
	Loops int   // loops for this row
}

// Table returns a rule that looks up the depth: the row with the smallest Below above the depth
// applies, or otherwise if there is none. An empty queue gets one loop. The steps may be in any
// order.
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

// Stepped returns a sample rule: under 100 messages ten loops, under 1,000 fifty, and a hundred
// above.
func Stepped() Loops {
	return Table(100, Step{Below: 100, Loops: 10}, Step{Below: 1000, Loops: 50})
}
