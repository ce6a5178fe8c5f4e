package simulation

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"
)

// dice makes every random decision of a world. A decision depends on the seed and on its
// subject, never on time or goroutine, so that a world can be repeated.
type dice uint64

// unit returns a number from 0 to 1, 1 excluded.
func (d dice) unit(about ...string) float64 {
	h := fnv.New64a()
	for _, s := range about {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	// FNV alone leaves neighbours near each other: mix as splitmix64 does.
	x := h.Sum64() ^ (uint64(d)+1)*0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	x ^= x >> 31
	return float64(x>>11) / (1 << 53)
}

func (d dice) chance(p float64, about ...string) bool { return d.unit(about...) < p }

// within returns a duration from least to most, to the nanosecond, so that two of them are
// hardly ever equal: what happens at the same instant happens in any order.
func (d dice) within(least, most time.Duration, about ...string) time.Duration {
	return least + time.Duration(d.unit(about...)*float64(most-least))
}

// steep is within on a logarithmic scale.
func (d dice) steep(least, most time.Duration, about ...string) time.Duration {
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), d.unit(about...)))
}

// number returns an integer from least to most, both included.
func (d dice) number(least, most int, about ...string) int {
	return least + int(d.unit(about...)*float64(most-least+1))
}

// pick returns one of the values.
func pick[T any](d dice, of []T, about ...string) T { return of[d.number(0, len(of)-1, about...)] }

func str(n int) string { return strconv.Itoa(n) }
