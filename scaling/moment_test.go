package scaling

import (
	"math"
	"testing"
	"time"
)

// what each figure of a moment, and each one that is missing, does to the number that is wanted. One
// instance of measured serves 5 5/6 messages a second, 4 2/3 at 80 %.
func TestWhatIsWantedFollowsFromTheFigures(t *testing.T) {
	none := Optional[int64]{}
	few := func(change func(*Sample)) History {
		return every10s(repeat(12, with(measured(6, 0, 28, 28), change))...)
	}
	for name, c := range map[string]struct {
		policy  Policy
		history History
		want    int
	}{
		"the load alone":         {history: few(func(*Sample) {}), want: 6},
		"a backlog":              {history: few(func(s *Sample) { s.Visible = Known(int64(119)) }), want: 7},                // (28 + 119/60) / 4.667
		"a backlog in the depth": {history: few(func(s *Sample) { s.Visible, s.Depth = none, Known(int64(656)) }), want: 8}, // 96 in work
		"and delayed ones":       {history: few(func(s *Sample) { s.Visible, s.Depth, s.Delayed = none, Known(int64(956)), Known(int64(300)) }), want: 8},
		"in work by who runs":    {history: few(func(s *Sample) { s.Visible, s.InWork, s.Depth = none, none, Known(int64(656)) }), want: 8},
		"in work by slots": {history: few(func(s *Sample) {
			s.Visible, s.InWork, s.Running, s.Depth = none, none, Optional[int]{}, Known(int64(680))
		}), want: 8},
		"jobs longer than the target": {history: few(func(s *Sample) {
			s.Handling, s.Arrival, s.Service, s.Running, s.Visible = Known(10*time.Minute), Known(0.1), Known(0.1), Known(60), Known(int64(20))
		}), want: 5}, // (60 + 20) / 16
		"arrivals from service and growth": {history: growing(28, 10, func(s *Sample) { // 38 / 4.667
			s.Arrival, s.Running = Optional[float64]{}, Optional[int]{}
		}), want: 9},
		"arrivals from who runs and growth": {history: growing(28, 10, func(s *Sample) { // as many
			s.Arrival, s.Service = Optional[float64]{}, Optional[float64]{}
		}), want: 9},
		"those that start occupy no slots": {history: every10s(append(repeat(5, Sample{Instances: 2, Depth: Known(int64(1000))}),
			Sample{Instances: 4, Depth: Known(int64(1000))})...), want: 3}, // (128 + 872/60) / 51.2
		"those that start are counted on": {history: every10s(append(repeat(10, measured(6, 0, 40, 35)),
			repeat(2, with(measured(12, 0, 40, 35), func(s *Sample) { s.Ready = Known(6) }))...)...), want: 9}, // 40 / 4.667
		"the average of ten minutes":    {history: every10s(append(repeat(24, longJobs(0.2)), repeat(66, longJobs(0.1))...)...), want: 8}, // 0.1 × 1200 / 16
		"failing attempts":              {history: few(func(s *Sample) { s.Running = Known(110) }), want: 7},                              // 110 / 1.1 / 16
		"failing attempts of long jobs": {history: few(func(s *Sample) { s.Handling, s.Slots, s.Running = Known(30*time.Second), Known(200.0), Known(2000) }), want: 6},
		"handling by who runs":          {history: few(func(s *Sample) { s.Handling, s.Running = Optional[time.Duration]{}, Known(96) }), want: 6},
		"hardly any ends": {history: few(func(s *Sample) {
			s.Arrival, s.Service, s.Running = Known(0.15), Known(0.15), Known(60)
		}), want: 1}, // 9 messages in a minute judge nothing
		"hardly any runs": {policy: Policy{Handling: time.Second}, history: few(func(s *Sample) {
			s.Handling, s.Running = Optional[time.Duration]{}, Known(0)
		}), want: 2}, // 28 / 16
		"slots that cannot be used": {history: few(func(s *Sample) {
			s.Handling, s.Visible, s.Running = Known(time.Millisecond), Known(int64(700)), Known(1)
		}), want: 10}, // 6 × 20 / 28 / 1.1 s each: (28 + 700/60) × 3.896 / 16
		"with empty ones": {history: few(func(s *Sample) {
			s.Handling, s.Visible, s.Running = Known(time.Millisecond), Known(int64(100)), Known(1)
		}), want: 1},
		"a policy's handling": {policy: Policy{Handling: 4 * time.Second}, history: few(func(s *Sample) { s.Handling, s.Running = Optional[time.Duration]{}, Optional[int]{} }), want: 7},
		"a guessed one and who runs": {history: few(func(s *Sample) {
			s.Handling, s.Running, s.Service = Optional[time.Duration]{}, Known(96), Optional[float64]{}
		}), want: 6},
		"handling of an hour ago": {history: append(every10s(with(measured(6, 0, 28, 28), func(s *Sample) { s.Handling = Known(4 * time.Second) })),
			later(time.Hour, with(measured(6, 0, 28, 28), func(s *Sample) { s.Handling, s.Running = Optional[time.Duration]{}, Optional[int]{} }))), want: 7},
		"handling of two days ago": {history: append(every10s(with(measured(6, 0, 28, 28), func(s *Sample) { s.Handling = Known(4 * time.Second) })),
			later(2*day, with(measured(6, 0, 28, 28), func(s *Sample) { s.Handling, s.Running = Optional[time.Duration]{}, Optional[int]{} }))), want: 6},
		"handling that changed just now": {history: every10s(append(repeat(12, measured(6, 0, 28, 28)),
			with(measured(6, 0, 28, 28), func(s *Sample) { s.Handling = Known(36 * time.Second) }))...), want: 12}, // 5.93 s on average, and 166 more waiting in 30 s
		"an integer but for the error of its computation": {policy: Policy{Utilization: 1}, history: every10s(measured(6, 0, 35*(1+1e-12), 35)), want: 6},
	} {
		c.policy.Max = 1000
		if d := c.policy.Decide(c.history); d.Wanted != c.want {
			t.Errorf("%s: got %s, want %d wanted", name, d.Why, c.want)
		}
	}
}

// longJobs take 20 minutes.
func longJobs(arrival float64) Sample {
	return with(measured(6, 0, arrival, arrival), func(s *Sample) { s.Handling, s.Running = Known(20*time.Minute), Known(100) })
}

func later(d time.Duration, s Sample) Sample {
	s.At = noon.Add(d)
	return s
}

// growing is a history of two minutes in which the depth grows by so much a second, all of it delayed.
func growing(rate float64, by int, change func(*Sample)) History {
	var all []Sample
	for i := range 12 {
		all = append(all, with(measured(6, 0, rate, rate), func(s *Sample) {
			s.Depth, s.Delayed = Known(int64(96+10*by*i)), Known(int64(10*by*i))
			change(s)
		}))
	}
	return every10s(all...)
}

// only a rise that stands out of the noise is a trend, and not the step that is behind.
func TestATrendStandsOutOfTheNoise(t *testing.T) {
	rates := func(in ...float64) (h History) {
		var all []Sample
		for _, v := range in {
			all = append(all, measured(50, 0, v, v))
		}
		return every10s(all...)
	}
	line := func(n int, from, step float64) (in []float64) {
		for i := range n {
			in = append(in, from+step*float64(i))
		}
		return in
	}
	for name, c := range map[string]struct {
		history History
		want    float64 // a second, in 30 s
	}{
		"a line":            {rates(line(30, 100, 1)...), 129 - 2.5 + 0.1*60}, // the average is of the last six
		"a short line":      {rates(line(4, 100, 1)...), 101.5},
		"noise":             {rates(100, 103, 99, 101, 104, 98, 102, 103, 99, 105, 100, 104), (102.0 + 103 + 99 + 105 + 100 + 104) / 6},
		"a step behind":     {rates(append(line(12, 100, 0), line(18, 200, 0)...)...), 200},
		"a fall":            {rates(line(30, 100, -1)...), 73.5},
		"a rise at an end":  {rates(append(line(25, 200, -2), line(5, 150, 2)...)...), 153.0 + 2./3},
		"a steep one":       {rates(line(30, 0, 10)...), 265 + 60},
		"a steep short one": {rates(line(6, 0, 10)...), 25},
		"a step":            {rates(append(line(26, 100, 0), line(4, 160, 0)...)...), 160},
		"a step just now":   {rates(append(line(29, 100, 0), 160)...), 110},
		"a step by halves":  {rates(append(line(13, 100, 0), 130, 160, 160, 160, 160, 160)...), 155},
		"a step down":       {rates(append(line(26, 100, 0), line(3, 10, 0)...)...), 10},
		"a peak behind":     {rates(append(line(26, 100, 2), line(4, 148, -2)...)...), 146 + 1./3},
		"five minutes ago":  {rates(append(line(5, 500, 0), line(31, 100, 0)...)...), 100},
	} {
		p := Policy{}
		ch := choice{rules: p.rules(), past: past{h: c.history, next: len(c.history) - 1}, latest: findLatest(c.history)}
		ch.look(0, &ch.now)
		if got := ch.now.later; math.Abs(got-c.want) > 0.001 {
			t.Errorf("%s: got %v/s in 30 s, want %v", name, got, c.want)
		}
	}
}

// who works, and who comes when.
func TestStartingInstancesComeWhenTheyShould(t *testing.T) {
	at := func(seconds, instances int, ready Optional[int]) Sample {
		return Sample{At: noon.Add(time.Duration(seconds) * time.Second), Instances: instances, Ready: ready, Depth: Known(int64(0))}
	}
	nobody := Optional[int]{}
	for name, c := range map[string]struct {
		history         History
		working, coming float64
	}{
		"one sample":            {History{at(0, 4, nobody)}, 4, 0},
		"asked for 10 s ago":    {History{at(-60, 4, nobody), at(-10, 4, nobody), at(0, 7, nobody)}, 4, 1}, // 3 in the last third
		"asked for long ago":    {History{at(-60, 7, nobody), at(-40, 7, nobody), at(0, 7, nobody)}, 7, 0},
		"late":                  {History{at(-60, 7, nobody), at(-10, 7, Known(4)), at(0, 7, Known(4))}, 4, 0},
		"early":                 {History{at(-60, 4, nobody), at(-10, 4, nobody), at(0, 7, Known(6))}, 6, 1. / 3},
		"in two steps":          {History{at(-40, 4, nobody), at(-20, 4, nobody), at(-10, 6, nobody), at(0, 7, nobody)}, 4, 2./3 + 1}, // 2 and 3
		"fewer":                 {History{at(-40, 9, nobody), at(-10, 9, nobody), at(0, 7, nobody)}, 7, 0},
		"more report than stay": {History{at(-40, 9, nobody), at(0, 7, Known(9))}, 7, 0},
		"removed again":         {History{at(-40, 4, nobody), at(-10, 9, nobody), at(0, 6, nobody)}, 4, 2},
	} {
		p := Policy{}
		ch := choice{rules: p.rules(), past: past{h: c.history, next: len(c.history) - 1}, latest: findLatest(c.history)}
		ch.look(0, &ch.now)
		if m := ch.now; m.working != c.working || math.Abs(m.coming-c.coming) > 1e-9 {
			t.Errorf("%s: got %v working and %v coming, want %v and %v", name, m.working, m.coming, c.working, c.coming)
		}
	}
}
