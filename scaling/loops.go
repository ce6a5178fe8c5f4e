package scaling

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/load"
)

// Load is what one instance knows of its load. A rule for loops gets it, a listener's state has it,
// and an instance reports it. It may be copied. Its JSON form has the names in lower case, with
// underscores. The fields:
//
//   - Depth: the approximate number of messages in the queue, including those being handled.
//   - Loops: the number of loops running.
//   - Running: the number of handlers running.
//   - Settling: the number of settlements in progress.
//   - Slots: how many handlers may run at once. With shared slots, how many there are for all.
//   - BatchSize: how many messages one loop takes at most in one dequeue.
//   - Arrival: how many messages a second come to the queue, as far as this instance can tell: the
//     growth between its readings of the depth, and the messages that it took off the queue
//     meanwhile. Messages that others took off are missing. It is the mean since the youngest reading
//     that is 30 s older than the newest, or since the oldest of the last 5 min. A reading that fails
//     changes nothing. It is unknown until the depth was read twice in 5 min, a second apart. It is
//     unknown while the newest reading is more than a minute old, such as when the queue is empty or
//     no more loops may start, and while others take off more than comes.
//   - Intake: how many messages a second this instance has received in the last 30 s, or since its
//     start. Unknown in its first second.
//   - Service: how many messages a second this instance has taken off the queue in the same time:
//     deleted, or moved to the poison queue. Unknown in its first second.
//   - Handling: how long a handler took, on average of those that returned in the same time, or of
//     the latest ones if none did. Unknown until one has returned.
type Load = load.Load

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

// deltaBackoff and its jitter are constants of the formula.
const (
	deltaBackoff = 100.0 // milliseconds
	jitterLow    = 0.8
	jitterHigh   = 1.2
)

// Curve returns how long a loop waits after its k-th empty poll in a row by default: min(minWait +
// int((2^k − 1) × r) ms, maxWait), where r is a random integer in 80…119. Negative bounds count as
// zero. Random(n) returns a number in [0, n), as rand.IntN does, so that a run can be repeated. Curve
// is safe for concurrent use if random is.
func Curve(minWait, maxWait time.Duration, k int, random func(n int) int) time.Duration {
	r := jitterLow*deltaBackoff + float64(random(int((jitterHigh-jitterLow)*deltaBackoff)))
	return interval(max(minWait, 0), max(maxWait, 0), k, r)
}

// interval clamps in floating point, before it converts: from the 25th empty poll on, 2^k × r
// exceeds 32 bits, and later the 64 bits of a Duration, and the wait would become negative.
func interval(minWait, maxWait time.Duration, empty int, r float64) time.Duration {
	delta := math.Trunc((math.Exp2(float64(empty)) - 1) * r)
	if d := delta * float64(time.Millisecond); d < float64(maxWait-minWait) {
		return minWait + time.Duration(d)
	}
	return maxWait
}
