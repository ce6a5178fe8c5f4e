package sharded

import (
	"fmt"
	"testing"
)

func TestTheMemoryOfRepeatsIsBounded(t *testing.T) {
	var r repeats
	s := &shard{}
	const n = 10 * maxRepeats
	for i := range n {
		r.remember(fmt.Sprint(i), s, false)
		for j := max(0, i-maxRepeats+1); j <= i; j += 97 {
			if r.of(fmt.Sprint(j)).shard != s {
				t.Fatalf("after %d messages number %d is forgotten", i+1, j)
			}
		}
		if got := len(r.young) + len(r.older); got > 2*maxRepeats {
			t.Fatalf("%d messages are remembered", got)
		}
	}
	for i := range n {
		r.forget(fmt.Sprint(i))
	}
	if got := len(r.young) + len(r.older); got != 0 {
		t.Errorf("%d messages are remembered after all were accepted", got)
	}
}
