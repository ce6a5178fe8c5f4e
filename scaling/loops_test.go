package scaling

import (
	"math"
	"testing"
)

// L-29: the sample rule.
func TestTheSampleRule(t *testing.T) {
	rule := Stepped()
	for depth, want := range map[int64]int{1: 10, 99: 10, 100: 50, 999: 50, 1000: 100, math.MaxInt64: 100} {
		if got := rule(Load{Depth: depth}); got != want {
			t.Errorf("depth %d: got %d loops, want %d", depth, got, want)
		}
	}
}

// sourceRule is the original sample rule, whose last line cannot be reached.
func sourceRule(l Load) int {
	switch {
	case l.Depth < 100:
		return 10
	case l.Depth < 1000:
		return 50
	case l.Depth >= 1000:
		return 100
	}
	return 1
}

// oneForNothing is the check of X-06.
func oneForNothing(rule Loops) bool {
	return rule(Load{Depth: 0}) == 1 && rule(Load{Depth: -1}) == 1
}

// an empty queue takes one loop.
func TestAnEmptyQueueTakesOneLoop(t *testing.T) {
	if !oneForNothing(Stepped()) || !oneForNothing(PerBatch) {
		t.Error("an empty queue takes more than one loop")
	}
	if oneForNothing(sourceRule) {
		t.Error("the check lets the source's rule pass: it proves nothing")
	}
}

func TestPerBatchTakesTheDepthInOneGo(t *testing.T) {
	for depth, want := range map[int64]int{1: 1, 32: 1, 33: 2, 320: 10, 321: 11, math.MaxInt64: 1 << 30} {
		if got := PerBatch(Load{Depth: depth, BatchSize: 32}); got != want {
			t.Errorf("depth %d: got %d loops, want %d", depth, got, want)
		}
	}
	if got := PerBatch(Load{Depth: 7}); got != 1 {
		t.Errorf("without a batch size: got %d loops, want 1", got)
	}
}

// L-30: steps may come in any order.
func TestStepsMayComeInAnyOrder(t *testing.T) {
	rule := Table(9, Step{Below: 1000, Loops: 5}, Step{Below: 10, Loops: 2})
	for depth, want := range map[int64]int{0: 1, 9: 2, 10: 5, 1000: 9} {
		if got := rule(Load{Depth: depth}); got != want {
			t.Errorf("depth %d: got %d, want %d", depth, got, want)
		}
	}
}
