package simulation

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
)

var (
	seeds = flag.Int("seeds", 0, "how many seeds to run, from 1; 0 means 100, 300 in the long form, and 20 with -short")
	seed  = flag.Uint64("seed", 0, "the one seed to run, with its trace")
)

// worlds returns how many seeds TestSeeds plays.
func worlds() uint64 {
	switch {
	case *seeds > 0:
		return uint64(*seeds)
	case testing.Short():
		return 20
	}
	return uint64(suitetest.Size(100, 300))
}

// run plays a seed in a bubble and audits it. A panic of the bubble, such as the one
// about goroutines that are left, is a violation too.
func run(t *testing.T, seed uint64, b breakage) *ledger {
	t.Helper()
	return runOver(t, inProcess, seed, b)
}

func runOver(t *testing.T, over way, seed uint64, b breakage) (result *ledger) {
	t.Helper()
	p := newPlan(seed)
	p.way = over
	if err := p.leaveOut(*without); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(time.Minute, func() {
		fmt.Fprintf(os.Stderr, "seed %d still runs after a minute: go test ./internal/simulation -run TestSeeds -seed %d\n", seed, seed)
	})
	defer watchdog.Stop()
	defer func() {
		if r := recover(); r != nil {
			result = &ledger{violations: []string{fmt.Sprint(r)}}
		}
	}()
	var w *world
	synctest.Test(t, func(*testing.T) { w = play(p, b) })
	return audit(w)
}

// TestSeeds runs many worlds, or with -seed one.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		report(t, *seed, run(t, *seed, breakage{}))
		return
	}
	last := worlds()
	var next atomic.Uint64
	var all sync.WaitGroup
	var mu sync.Mutex
	overlaps := map[string]int{}
	messages, deliveries, failed := 0, 0, 0
	for range runtime.GOMAXPROCS(0) {
		all.Go(func() {
			for n := next.Add(1); n <= last; n = next.Add(1) {
				b := run(t, n, breakage{})
				mu.Lock()
				for cause, n := range b.overlaps {
					overlaps[cause] += n
				}
				messages += len(b.order)
				for _, a := range b.order {
					deliveries += len(a.deliveries)
				}
				if len(b.violations) > 0 {
					failed++
					report(t, n, b)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("%d seeds, %d failed, %d messages, %d deliveries; messages that ended in several places, and why:%s",
		last, failed, messages, deliveries, listed(overlaps))
}

// listed returns a line for each count, sorted by name.
func listed(counts map[string]int) (lines string) {
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		lines += fmt.Sprintf("\n%6d %s", counts[what], what)
	}
	return lines
}

// report fails the test with the violations of a seed, and says how to replay it.
func report(t *testing.T, n uint64, b *ledger) {
	t.Helper()
	if len(b.violations) == 0 {
		return
	}
	t.Errorf("seed %d: promises are broken; to replay: go test ./internal/simulation -run TestSeeds -seed %d\n%s",
		n, n, strings.Join(b.violations, "\n"))
	if *seed != 0 && b.world != nil {
		t.Logf("%s\n%s", b.world.plan.described(), strings.Join(b.world.history.trace(), "\n"))
		for _, p := range b.world.processes {
			t.Logf("calls of %s, since %v, which returned %v: %+v", p.plan.name, p.birth, p.err, p.state)
			for _, c := range p.wire.Trace() {
				t.Logf("%14v %+v", p.birth+c.At, c)
			}
		}
	}
}

// described returns the plan with a line for each job and worker.
func (p *plan) described() string {
	all := *p
	all.jobs, all.workers = nil, nil
	text := fmt.Sprintf("%+v", all)
	for _, j := range p.jobs {
		text += fmt.Sprintf("\n%+v", j)
	}
	for _, w := range p.workers {
		text += fmt.Sprintf("\n%+v", w)
	}
	return text
}
