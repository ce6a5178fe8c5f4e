package simulation

import (
	"strings"
	"testing"
	"time"
)

// TestReplay plays a sample of seeds twice: both times the same happens at the same
// instants. Worlds in which the library itself leaves something to the scheduler are
// played too, and reported, but may differ; doc.go says what that is.
func TestReplay(t *testing.T) {
	const sample = 200
	worlds, differ := map[bool]int{}, map[bool]int{}
	for n := uint64(1); n <= sample; n++ {
		one, other := run(t, n, breakage{}), run(t, n, breakage{})
		if one.world == nil || other.world == nil {
			continue // TestSeeds says what is wrong with it
		}
		racy := one.racy() || other.racy()
		worlds[racy]++
		what := difference(one.world.history.trace(), other.world.history.trace())
		if what == "" {
			continue
		}
		differ[racy]++
		if racy {
			t.Logf("seed %d, left to the scheduler, is not the same twice: %s", n, what)
		} else {
			t.Errorf("seed %d is not the same twice: %s", n, what)
		}
	}
	t.Logf("different: %d of %d worlds, and %d of %d that are left to the scheduler", differ[false], worlds[false], differ[true], worlds[true])
	if worlds[false] < sample/4 {
		t.Errorf("only %d of %d worlds were held to their trace", worlds[false], sample)
	}
}

// racy tells whether the world may have been decided by the scheduler: listeners had
// several loops, or one dequeue brought several messages that no handler saw.
func (b *books) racy() bool {
	type batch struct {
		who string
		at  time.Duration
	}
	unseen := make(map[batch]int)
	for _, a := range b.order {
		for _, d := range a.deliveries {
			if d.began == nil && a.job.form != junk { // the codec takes its time for junk
				unseen[batch{d.who, d.entry.at}]++
			}
		}
	}
	for _, n := range unseen {
		if n > 1 {
			return true
		}
	}
	return b.world.plan.manyLoops
}

// difference is the first line in which two traces differ, with some before it.
func difference(first, second []string) string {
	line := func(of []string, i int) string {
		if i < len(of) {
			return of[i]
		}
		return "(nothing)"
	}
	for i := range max(len(first), len(second)) {
		if a, b := line(first, i), line(second, i); a != b {
			return "once\n" + a + "\nand once\n" + b + "\nafter\n" + strings.Join(first[max(i-6, 0):min(i, len(first))], "\n")
		}
	}
	return ""
}
