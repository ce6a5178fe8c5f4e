package slots

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
)

// a dependency refuses what is beyond its capacity, and its capacity changes: 100, 10, 100. No fixed number is right for
// both: 64 wastes calls on refusals, 8 leaves most of it unused.
func TestTheLimitFollowsACapacityThatChanges(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	notWithRaceDetector(t)
	const third = 20 * time.Minute
	for seed := range uint64(suitetest.Size(1, 2)) {
		changing := func(third time.Duration) func(*dependency) {
			return func(d *dependency) {
				begin := time.Now()
				d.refuses, d.takes = true, around(2*time.Second)
				d.capacity = func() int {
					if n := time.Since(begin) / third; n == 1 {
						return 10
					}
					return 100
				}
			}
		}
		possible := int(float64(2*100+10) * third.Seconds() / 2)
		if seed == 0 {
			const short = third / 10
			high, low := run(t, seed, 3*short, 64, nil, changing(short)), run(t, seed, 3*short, 8, nil, changing(short))
			t.Logf("in a tenth of the time, of %d:\nfixed 64: %v\nfixed 8: %v", possible/10, high, low)
			if high.refusedPart() < 0.5 || low.answered > possible/10/5 {
				t.Error("a fixed number copes: it proves nothing")
			}
		}
		got := run(t, seed, 3*third, 0, func(*dependency) *AdaptiveOptions { return &AdaptiveOptions{Max: 200} }, changing(third))
		t.Logf("possible: %d, adaptive: %v", possible, got)
		if got.answered < possible*85/100 {
			t.Errorf("seed %d: got %d calls answered, want at least 85 %% of %d", seed, got.answered, possible)
		}
		if got.refusedPart() > 0.03 {
			t.Errorf("seed %d: got %.1f %% of the calls refused, want at most 3 %%", seed, got.refusedPart()*100)
		}
	}
}

// A dependency that becomes slow for all, and refuses none: a fixed number beyond the knee only makes all wait.
func TestTheGradientFindsTheKneeOfALatency(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of a busy process")
	}
	notWithRaceDetector(t)
	for seed := range uint64(suitetest.Size(1, 2)) {
		random := rand.New(rand.NewPCG(seed, 1))
		knee := 8 + random.IntN(25)
		base := time.Duration(200+random.IntN(800)) * time.Millisecond
		const lasts = 20 * time.Minute
		set := func(d *dependency) {
			d.slows, d.takes, d.capacity = true, around(base), func() int { return knee }
		}
		possible := int(float64(knee) * (lasts.Seconds() / base.Seconds()))
		fixed := run(t, seed, lasts/10, 128, nil, set)
		got := run(t, seed, lasts, 0, func(*dependency) *AdaptiveOptions { return &AdaptiveOptions{Max: 128, Gradient: true} }, set)
		t.Logf("knee %d, base %v, possible: %d\nfixed 128: %v\nadaptive: %v", knee, base, possible, fixed, got)
		if fixed.mean < 3*base {
			t.Errorf("seed %d: fixed: got %v on average, want 3 × %v or more: it proves nothing", seed, fixed.mean, base)
		}
		if got.answered < possible*95/100 || got.mean > 2*base || got.most > knee*7/4+5 {
			t.Errorf("seed %d: got %d calls answered in %v on average, %d at once; want 95 %% of %d or more, in at most 2 × %v, 1.75 × %d + 5 at once at most",
				seed, got.answered, got.mean, got.most, possible, base, knee)
		}
	}
}

// Handlers hold memory, more towards their end, and differ. The container is killed beyond its limit.
func TestTheMemoryGuardKeepsTheContainerAlive(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hours of a busy process")
	}
	notWithRaceDetector(t)
	const container = 2 << 30
	for seed := range uint64(suitetest.Size(1, 2)) {
		random := rand.New(rand.NewPCG(seed, 2))
		mean := int64(20+random.IntN(40)) << 20
		const lasts = time.Hour
		set := func(d *dependency) {
			begin := time.Now()
			d.takes, d.capacity = around(2*time.Second), func() int { return 1 << 30 }
			d.holds = func(r *rand.Rand) int64 {
				// Files become larger and smaller again in the course of 20 minutes.
				wave := 1 + math.Sin(2*math.Pi*time.Since(begin).Minutes()/20)/2
				size := float64(mean) * (0.7 + 0.6*r.Float64()) * wave
				return int64(size)
			}
		}
		fixed := run(t, seed, lasts/10, 128, nil, set)
		got := run(t, seed, lasts, 0, func(d *dependency) *AdaptiveOptions {
			return &AdaptiveOptions{Max: 128, Memory: func() (Memory, error) {
				d.mu.Lock()
				defer d.mu.Unlock()
				return Memory{Used: 100<<20 + d.used, Limit: container}, nil
			}}
		}, set)
		// On average a running handler holds 5/8 of its size.
		fits := 0.8*container - 100<<20
		possible := 0
		for second := range int(lasts.Seconds()) {
			wave := 1 + math.Sin(2*math.Pi*float64(second)/60/20)/2
			possible += int(min(fits/(float64(mean)*wave*5/8), 128) / 2)
		}
		t.Logf("%s each, possible: %d\nfixed 128: %v\nadaptive: %v", inMiB(mean), possible, fixed, got)
		if fixed.peak < container {
			t.Errorf("seed %d: fixed: got a peak of %s: it proves nothing", seed, inMiB(fixed.peak))
		}
		if got.peak+100<<20 > container {
			t.Errorf("seed %d: killed: got a peak of %s with 100 MiB besides, want less than %s", seed, inMiB(got.peak), inMiB(container))
		}
		if got.answered < possible*75/100 {
			t.Errorf("seed %d: got %d calls answered, want at least 75 %% of the %d for which there is room", seed, got.answered, possible)
		}
	}
}
