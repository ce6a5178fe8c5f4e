package dispatcher

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// A visibility that was found elsewhere is the shortest for ten minutes, also when handling times
// are known and brief, and then gives way.
func TestAVisibilityFoundElsewhereGivesWaySlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVisibilityEstimator(Visibility{First: 30 * time.Second, Min: 10 * time.Second, Max: 10 * time.Minute})
		is := func(when string, want time.Duration) {
			t.Helper()
			if got := f.forDequeue(0); got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		f.begin(2 * time.Minute)
		is("before handling times are known", 2*time.Minute)
		for range recompute {
			f.recordHandling(time.Millisecond)
		}
		time.Sleep(calmPeriod - time.Second)
		f.begin(2 * time.Minute) // read again and again
		is("for ten minutes", 2*time.Minute)
		time.Sleep(time.Second)
		is("after ten minutes", time.Minute)
		time.Sleep(3 * calmPeriod)
		is("in the end", 10*time.Second)

		f.begin(5 * time.Minute)
		is("raised", 5*time.Minute)
		f.recordTooShort(4 * time.Minute) // a lease here needs eight
		f.begin(6 * time.Minute)
		is("raised to less than a lease needs", 8*time.Minute)
		f.begin(time.Minute)
		is("lowered", time.Minute)
		f.begin(time.Hour)
		is("beyond the longest", 10*time.Minute)
		f.begin(0)
		is("removed", 10*time.Second)
	})
}

// Before handling times are known, what is not told anything begins with First.
func TestAVisibilityThatIsRemovedLeavesTheFirst(t *testing.T) {
	f := newVisibilityEstimator(Visibility{First: 30 * time.Second, Min: 10 * time.Second, Max: 10 * time.Minute})
	for _, c := range []struct{ told, want time.Duration }{{0, 30 * time.Second}, {15 * time.Second, 15 * time.Second}, {time.Second, 10 * time.Second}, {time.Hour, 10 * time.Minute}, {0, 30 * time.Second}} {
		if f.begin(c.told); f.forDequeue(0) != c.want {
			t.Errorf("told %v: got %v, want %v", c.told, f.forDequeue(0), c.want)
		}
	}
}

// What was found is what handling times and short leases call for, and neither a bound nor the
// number of leases.
func TestTheVisibilityThatWasFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newVisibilityEstimator(Visibility{First: time.Minute, Min: 20 * time.Second, Max: 10 * time.Minute})
		is := func(when string, want time.Duration) {
			t.Helper()
			if got := f.found(); got != want {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		is("at first", 0)
		for range recompute {
			f.recordHandling(time.Millisecond)
		}
		is("with brief handlers", 0)
		for range len(f.recent) {
			f.recordHandling(50 * time.Second)
		}
		is("with handlers of 50 s", 100*time.Second)
		f.recordTooShort(2 * time.Minute)
		is("after a lease that was too short", 4*time.Minute)
		time.Sleep(trouble - time.Second)
		f.recordDequeue(time.Minute, 4*time.Minute) // half of it would have been too short
		time.Sleep(trouble - time.Second)
		is("while it is needed", 4*time.Minute)
		time.Sleep(time.Second)
		is("when it was not needed for a while", 100*time.Second)
		f.begin(5 * time.Minute)
		is("told by others", 100*time.Second)
		for range len(f.recent) {
			f.recordHandling(time.Hour)
		}
		is("with handlers of an hour", 10*time.Minute)
	})
	fixed := newVisibilityEstimator(FixedVisibility(time.Minute))
	fixed.recordTooShort(time.Minute)
	if got := fixed.found(); got != 0 {
		t.Errorf("fixed: got %v, want 0", got)
	}
}

// Whatever is told and recorded, a dequeue asks for a visibility within the bounds, and at least for
// what was told last.
func TestAVisibilityFoundElsewhereStaysWithinTheBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds, err := Visibility{
			Min: time.Duration(rapid.IntRange(5, 60).Draw(t, "min")) * time.Second,
			Max: time.Duration(rapid.IntRange(60, 1000).Draw(t, "max")) * time.Second,
		}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		f := newVisibilityEstimator(bounds)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			d := time.Duration(rapid.IntRange(0, 2000).Draw(t, "seconds")) * time.Second
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				f.begin(d)
			case 1:
				f.recordTooShort(d)
			case 2:
				for range recompute {
					f.recordHandling(d)
				}
			}
			got := f.forDequeue(0)
			if got < bounds.Min || got > bounds.Max || got < min(f.told, bounds.Max) {
				t.Fatalf("got %v, want it within %v…%v and at least %v", got, bounds.Min, bounds.Max, f.told)
			}
			if found := f.found(); found > got {
				t.Fatalf("found %v, but asks for %v", found, got)
			}
		}
	})
}

func TestThresholdsOfZeroAreThoseOfTheOptions(t *testing.T) {
	d := &Dispatcher{}
	d.options.Poison.MaxAttempts, d.options.Poison.MaxLost = 4, 6
	for _, c := range [][4]int{{0, 0, 4, 6}, {9, 0, 9, 6}, {0, 8, 4, 8}, {-1, -1, 4, 6}, {1, 1, 1, 1}} {
		d.SetThresholds(c[0], c[1])
		if a, l := d.maxAttempts(), d.maxLost(); a != c[2] || l != c[3] {
			t.Errorf("set to %d and %d: got %d and %d, want %d and %d", c[0], c[1], a, l, c[2], c[3])
		}
	}
}
