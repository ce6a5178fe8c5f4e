package scaling

import (
	"cmp"
	"slices"
	"time"
)

// Load is what one instance knows of its load. It is the input of a [Loops] function, and part of what an
// instance reports of itself. It may be copied.
type Load struct {
	// Depth is the approximate number of messages in the queue, including those being handled.
	Depth int64 `json:"depth"`

	// Loops is the number of loops running.
	Loops int `json:"loops"`

	// Running is the number of handlers running.
	Running int `json:"running"`

	// Settling is the number of settlements in progress.
	Settling int `json:"settling"`

	// Slots is how many handlers may run at once.
	Slots int `json:"slots"`

	// BatchSize is how many messages one loop takes at most in one dequeue.
	BatchSize int `json:"batch_size"`

	// Arrival is how many messages a second come to the queue, as far as this instance can tell: what its readings of the
	// depth have grown by, and what it took off the queue meanwhile. What other instances took off is missing.
	// It is the mean since the youngest reading that is 30 s older than the newest, or since the oldest of the last
	// 5 min. A reading that fails changes nothing. Unknown until the depth was read twice in 5 min, a second apart; when
	// the newest reading is more than a minute old, such as when the queue is empty or no more loops may start; and when the figure would be negative, because others took off more than
	// came.
	Arrival Optional[float64] `json:"arrival"`

	// Intake is how many messages a second this instance has received in the last 30 s, or since its start. Unknown
	// in its first second.
	Intake Optional[float64] `json:"intake"`

	// Service is how many messages a second this instance has taken off the queue in the same time: deleted or moved to
	// the poison queue.
	Service Optional[float64] `json:"service"`

	// Handling is how long a handler took, on average of those that returned in the same time, or of the latest ones if none
	// did. Unknown until one has returned.
	Handling Optional[time.Duration] `json:"handling"`
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
