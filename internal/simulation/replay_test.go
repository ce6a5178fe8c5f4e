package simulation

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/queue/faultqueue"
)

var replays = flag.Int("replays", 0, "number of seeds that TestReplay plays twice, from 1; 0 means 50, 140 in the long form, and 10 with -short")

// TestReplay plays seeds twice: the same events must happen at the same instants, on the server, in
// the handlers and in the fault queues.
func TestReplay(t *testing.T) {
	last := *replays
	if last == 0 {
		if last = suitetest.Size(50, 140); testing.Short() {
			last = 10
		}
	}
	played, differ := 0, 0
	for n := uint64(1); n <= uint64(last); n++ {
		if newPlan(n).races() {
			continue
		}
		one, other := run(t, n, breakage{}), run(t, n, breakage{})
		if one.world == nil || other.world == nil || one.world.raced() || other.world.raced() {
			continue // TestSeeds reports it, or see doc.go
		}
		played++
		if what := difference(one.world.trace(), other.world.trace()); what != "" {
			differ++
			t.Errorf("seed %d: two traces differ: %s", n, what)
		}
	}
	t.Logf("%d seeds, %d played twice, %d with two traces", last, played, differ)
}

// races reports whether two goroutines of the world may do something at one instant whose order matters,
// so that two runs of it may differ: see doc.go.
func (p *plan) races() bool {
	return p.pausesManyLoops() || p.pairing.on || p.pool.on() || p.shards.on()
}

// raced reports whether that happened in a world that was played: a message has waited because its source fails,
// or two batches have waited for one reading of the pause, after which their loops go on at one instant. What is
// younger than a minute is not read again.
func (w *world) raced() bool {
	for _, p := range w.processes {
		calls, read := p.wire.Trace(), -time.Minute
		for _, reading := range calls {
			if reading.Op != faultqueue.Properties || reading.Queue != jobs.Queue || reading.At < read+time.Minute {
				continue
			}
			if reading.Error == "" {
				read = reading.At
			}
			waiting := 0
			for _, c := range calls {
				end := c.At + c.Took
				if c.Op == faultqueue.Dequeue && c.Queue == jobs.Queue && c.Count > 0 && end >= reading.At && end < reading.At+reading.Took {
					waiting++
				}
			}
			if waiting > 1 {
				return true
			}
		}
	}
	return w.limited.Load()
}

// trace returns the events of the world, and then the calls of every process before its death, after
// which time has no meaning for it.
func (w *world) trace() []string {
	lines := w.history.trace()
	for _, p := range w.processes {
		for _, c := range p.wire.Trace() {
			if p.death == 0 || p.birth+c.At < p.death || c.Fault == faultqueue.Arrival {
				lines = append(lines, fmt.Sprintf("%s: %14v %+v", p.plan.name, p.birth+c.At, c))
			}
		}
	}
	return lines
}

// difference returns the first line in which two traces differ, with some lines before it.
func difference(first, second []string) string {
	if slices.Equal(first, second) {
		return ""
	}
	line := func(of []string, i int) string {
		if i < len(of) {
			return of[i]
		}
		return "(nothing)"
	}
	i := 0
	for line(first, i) == line(second, i) {
		i++
	}
	return "first\n" + line(first, i) + "\nsecond\n" + line(second, i) + "\nafter\n" + strings.Join(first[max(i-6, 0):min(i, len(first))], "\n")
}
