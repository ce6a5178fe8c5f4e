package internal_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/internal/waiting"
)

func TestNumbersAreRepeatableAndEven(t *testing.T) {
	const draws, bins = 10_000, 20
	for name, draw := range map[string]func(i int) float64{
		"by key":     func(i int) float64 { return waiting.Jitter(fmt.Sprintf("message-%d", i), 0) },
		"by ordinal": func(i int) float64 { return waiting.Jitter("message", i) },
	} {
		var counts [bins]int
		for i := range draws {
			x := draw(i)
			if x < 0 || x >= 1 {
				t.Fatalf("%s: %v", name, x)
			}
			if x != draw(i) {
				t.Fatalf("%s: not the same twice", name)
			}
			counts[int(x*bins)]++
		}
		for i, n := range counts {
			if n < draws/bins*8/10 || n > draws/bins*12/10 {
				t.Errorf("%s: bin %d has %d of %d", name, i, n, draws)
			}
		}
	}
}
