package listener

import "testing"

// full is an interval with so many loops and messages a second, all of whose dequeues were full.
func full(loops int, intake float64) interval {
	return interval{loops: loops, intake: intake, dequeues: 8 * loops, full: 8 * loops}
}

// The steps of the controller, one interval after the other.
func TestByIntakeKeepsOnlyWhatBringsMore(t *testing.T) {
	next := byIntake()
	for n, step := range []struct {
		with interval
		want int
		why  string
	}{
		{full(4, 100), 6, "the first trial is half as many more"},
		{full(6, 150), 9, "they bring half as much more, so the next trial follows"},
		{full(9, 164), 6, "1.09 times as much is too little"},
		{full(6, 150), 4, "more is not tried again at once, but fewer"},
		{full(4, 100), 6, "they bring less than 0.95 times as much"},
		{full(6, 150), 7, "the next trial of more is smaller"},
		{full(7, 150), 6, "and fails"},
		{full(6, 150), 4, "fewer are tried"},
		{full(4, 143), 3, "0.953 times as much is enough, and fewer still are tried"},
		{full(3, 141), 4, "which is too little beside what there was before both"},
	} {
		if got := next(step.with); got != step.want {
			t.Fatalf("step %d: %d loops bring %.0f: got %d, want %d: %s", n, step.with.loops, step.with.intake, got, step.want, step.why)
		}
	}
}

// Errors reduce the loops as those of Temporal's poller autoscaler do.
func TestByIntakeYieldsToErrors(t *testing.T) {
	busy := func(loops int) interval { return interval{loops: loops, dequeues: 1, busy: 1} }
	for name, c := range map[string]struct {
		before []interval
		with   interval
		want   int
	}{
		"busy halves":                     {nil, busy(9), 4},
		"busy ends a trial":               {[]interval{full(4, 100)}, busy(6), 4},
		"an error ends one":               {nil, interval{loops: 9, dequeues: 72, full: 71, failed: 1}, 8},
		"empty polls end one":             {nil, interval{loops: 9, dequeues: 72, full: 35, empty: 37}, 8},
		"an error ends a trial":           {[]interval{full(4, 100)}, interval{loops: 6, dequeues: 48, failed: 48}, 5},
		"a trial that was not allowed":    {[]interval{full(4, 100)}, full(4, 100), 3},
		"no growth without full dequeues": {nil, interval{loops: 4, intake: 100.0, dequeues: 32, full: 20}, 3},
		"one loop stays":                  {nil, interval{loops: 1, intake: 100.0, dequeues: 8, full: 2}, 1},
		"an unknown intake":               {nil, interval{loops: 4, dequeues: 32, full: 32}, 6},
	} {
		next := byIntake()
		for _, i := range c.before {
			next(i)
		}
		if got := next(c.with); got != c.want {
			t.Errorf("%s: got %d loops, want %d", name, got, c.want)
		}
	}
}

// A trial that keeps failing becomes rare, and comes again when something has changed.
func TestTrialsThatFailBecomeRare(t *testing.T) {
	next := byIntake()
	loops, trials := 6, 0
	at := func(n int, limit float64) { // the knee is at 6 loops
		for range n {
			got := next(full(loops, limit/6*float64(min(loops, 6))))
			if got != 6 {
				trials++
			}
			loops = got
		}
	}
	at(100, 600)
	trials = 0
	at(1000, 600)
	if trials < 20 || trials > 80 {
		t.Errorf("trials in 1,000 intervals: got %d, want about two in 33", trials)
	}
	for loops != 6 {
		at(1, 600)
	}
	trials = 0
	at(4, 2000)
	if trials == 0 {
		t.Error("the intake has tripled, and in four intervals no other number of loops is tried")
	}
}

func TestControllersDoNotShareTheirState(t *testing.T) {
	one, other := byIntake(), byIntake()
	one(full(4, 100))
	if got := other(full(6, 100)); got != 9 {
		t.Errorf("got %d loops from the other controller's first interval, want 9", got)
	}
}
