package scaling

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// worst returns the most messages that waited from a decision on, and the most instances there were.
func (p *pool) worst(from int) (waiting int64, instances int) {
	for i, d := range p.decided {
		if i >= from {
			waiting = max(waiting, p.seen[i].Visible.Or(0))
			instances = max(instances, d.Instances)
		}
	}
	return waiting, instances
}

// changes counts the decisions that added instances and those that removed some.
func (p *pool) changes(from int) (up, down int) {
	for _, d := range p.decided[from:] {
		switch {
		case d.Instances > d.From:
			up++
		case d.Instances < d.From:
			down++
		}
	}
	return up, down
}

func (p *pool) story(t *testing.T) {
	for _, d := range p.decided {
		if d.Instances != d.From {
			t.Log(d.At.Sub(noon), d.Why)
		}
	}
}

// while arrivals rise, instances are asked for before they are needed. Those that start
// slowly are asked for the earlier.
func TestInstancesComeBeforeTheLoad(t *testing.T) {
	for _, start := range []int{10, 120} {
		p := &pool{
			policy: Policy{Max: 100, Start: time.Duration(start) * time.Second}, slots: 10, handling: constant(1),
			arrival: func(s int) float64 { return 100 + max(float64(s-600), 0)/9 }, // 100/s, and up to 300/s within half an hour
			start:   start, interval: 10, random: randomOf(1),
		}
		p.asked = slices.Repeat([]int{-1000}, 13)
		p.run(2400)
		if waiting, _ := p.worst(60); waiting > 20 {
			p.story(t)
			t.Errorf("instances that start in %d s: got %d messages waiting at a time, want hardly any", start, waiting)
		}
		up, down := p.changes(0)
		if down > 0 || up < 10 {
			t.Errorf("instances that start in %d s: got %d growths and %d removals, want growth all along", start, up, down)
		}
	}
}

// a short peak that the present instances drain in time starts none; one that they do not
// does, and so does one that lasts.
func TestShortPeaksStartNoInstances(t *testing.T) {
	for _, c := range []struct {
		name   string
		peak   float64 // messages a second
		length int     // seconds
		grows  bool
	}{
		{"short", 200, 5, false},
		{"too much", 1000, 10, true},
		{"lasting", 60, 300, true},
	} {
		p := &pool{
			policy: Policy{DownAfter: time.Hour}, slots: 10, handling: constant(1), start: 30, interval: 10,
			arrival: func(s int) float64 {
				if s >= 600 && s < 600+c.length {
					return c.peak
				}
				return 20
			},
		}
		p.asked = slices.Repeat([]int{-1000}, 5) // 50/s at most
		p.run(1000)
		if up, _ := p.changes(0); (up > 0) != c.grows {
			p.story(t)
			t.Errorf("a peak that is %s: got %d growths, want any: %v", c.name, up, c.grows)
		}
	}
}

// what was asked for is not asked for again while it starts.
func TestStartingInstancesAreCountedOn(t *testing.T) {
	for _, start := range []int{10, 60, 300} {
		p := &pool{
			policy: Policy{Max: 1000, Start: time.Duration(start) * time.Second}, slots: 10, handling: constant(1), start: start, interval: 10,
			arrival: func(s int) float64 {
				if s == 600 {
					return 30000 // at once
				}
				return 50
			},
		}
		p.asked = slices.Repeat([]int{-1000}, 7)
		p.run(3600)
		// 50/s and 30,000 in a minute call for 69 at 80 %; for a minute, the average of the arrivals has the peak too.
		if _, most := p.worst(0); most < 50 || most > 140 {
			p.story(t)
			t.Errorf("instances that start in %d s: got %d at most, want 50…140", start, most)
		}
		if p.waiting > 0 {
			t.Errorf("instances that start in %d s: %v messages still wait", start, p.waiting)
		}
		if got := len(p.asked); got > 8 {
			t.Errorf("instances that start in %d s: got %d at the end, want at most 8", start, got)
		}
	}
}

// growth that does not raise the service is not repeated at once: a dependency is the limit.
func TestGrowthThatDoesNotHelpIsNotRepeatedAtOnce(t *testing.T) {
	p := &pool{
		policy: Policy{Max: 1000}, slots: 10, handling: constant(1), start: 30, interval: 10, random: randomOf(1),
		arrival: constant(100), most: func(int) float64 { return 60 },
	}
	p.run(360)
	if _, most := p.worst(0); most > 110 { // saturated slots make jobs longer, until there are figures to judge
		p.story(t)
		t.Errorf("got %d instances after 6 min, want at most 110", most)
	}
	last := p.decided[len(p.decided)-1].Why
	if !strings.Contains(last, "did not raise") {
		t.Errorf("got %q, want that growth did not raise the service", last)
	}
	healthy := &pool{
		policy: Policy{Max: 1000}, slots: 10, handling: constant(1), start: 30, interval: 10, random: randomOf(1),
		arrival: constant(2000),
	}
	healthy.run(360)
	for _, d := range healthy.decided {
		if strings.Contains(d.Why, "did not raise") {
			t.Fatalf("without a dependency: got %s", d.Why)
		}
	}
}

// attempts that fail occupy slots, so a storm of them calls for more instances than arrivals
// and the handling time of one attempt do.
func TestFailingAttemptsAreLoad(t *testing.T) {
	ok := repeat(10, measured(12, 0, 28, 28))
	poisoned := repeat(10, with(measured(12, 0, 28, 28), func(s *Sample) { s.Running = Known(200) })) // of 240
	a, b := (Policy{}).Decide(every10s(ok...)), (Policy{}).Decide(every10s(poisoned...))
	if a.Wanted != 6 || b.Wanted != 12 {
		t.Errorf("got %d wanted, and with failing attempts %d, want 6 and 12: 200 slots at 80 %%", a.Wanted, b.Wanted)
	}
}

// instances that cannot do what their slots promise are counted by what they do.
func TestASmallPoolThatNeverDrainsGrows(t *testing.T) {
	slow := func(s *Sample) { s.Handling = Known(time.Millisecond) } // of the handler alone: 20,000/s an instance
	h := every10s(repeat(12, with(measured(2, 5000, 40, 10), slow))...)
	if d := (Policy{}).Decide(h); d.Wanted < 10 {
		t.Errorf("got %s, want at least 10 wanted", d.Why)
	}
	stuck := every10s(repeat(12, Sample{Instances: 3, Depth: Known(int64(1000))})...) // nobody reports, and nothing moves
	if d := (Policy{}).Decide(stuck); d.Instances <= 3 {
		t.Errorf("got %s, want more instances", d.Why)
	}
}

// an agent that forgets everything in mid-flight, clocks that jump, and metrics that fail change
// no number of instances under constant load.
func TestDisturbancesDoNotFlap(t *testing.T) {
	for name, disturb := range map[string]func(second int, p *pool, s *Sample){
		"a restart without history": func(second int, p *pool, _ *Sample) {
			if second%1800 == 1799 {
				p.history = nil
			}
		},
		"a clock that is set forward": func(second int, _ *pool, s *Sample) {
			if second > 3600 {
				s.At = s.At.Add(time.Hour)
			}
		},
		"a clock that is set back": func(second int, _ *pool, s *Sample) {
			if second > 3600 {
				s.At = s.At.Add(-time.Hour)
			}
		},
		"a clock that jumps": func(second int, _ *pool, s *Sample) {
			if second%600 > 300 {
				s.At = s.At.Add(9 * day)
			}
		},
		"a depth that fails": func(second int, _ *pool, s *Sample) {
			if second%600 > 300 {
				s.Depth, s.Visible = Optional[int64]{}, Optional[int64]{}
			}
		},
		"a queue that is deleted": func(second int, _ *pool, s *Sample) {
			if second > 3600 {
				*s = Sample{At: s.At, Instances: s.Instances}
			}
		},
		"reports that fail": func(second int, _ *pool, s *Sample) {
			if second > 3600 {
				*s = Sample{At: s.At, Instances: s.Instances, Depth: s.Depth}
			}
		},
		"half of the reports": func(second int, _ *pool, s *Sample) {
			if second > 3600 {
				s.Ready = Known(s.Ready.Or(0) / 2)
				s.Service, s.Arrival, s.Running = Known(s.Service.Or(0)/2), Known(s.Arrival.Or(0)/2), Known(s.Running.Or(0)/2)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pool{
				slots: 4, handling: constant(1), start: 30, interval: 10, random: randomOf(1),
				arrival: constant(28),
			}
			p.blind = func(second int, s *Sample) { disturb(second, p, s) }
			p.run(3 * 3600)
			if up, down := p.changes(180); up+down > 2 {
				p.story(t)
				t.Errorf("got %d growths and %d removals after half an hour, want at most 2 together", up, down)
			}
		})
	}
}

// instances go when the queues were empty for long, with ToZero all of them, and come back.
func TestAnEmptyPoolShrinksToZeroAndComesBack(t *testing.T) {
	p := &pool{
		policy: Policy{ToZero: true}, slots: 10, handling: constant(1), start: 30, interval: 10,
		arrival: func(s int) float64 {
			if s%3600 < 100 {
				return 50
			}
			return 0
		},
		blind: func(_ int, s *Sample) {
			if s.Instances == 0 { // nobody reports
				*s = Sample{At: s.At, Instances: 0, Depth: s.Depth}
			}
		},
	}
	p.run(2 * 3600)
	zeros := 0
	for i, d := range p.decided {
		if d.From == 0 {
			zeros++
		}
		if d.From > 0 && d.Instances == 0 && i%360 < 40 {
			t.Errorf("%v: got %s, want instances for 5 min after the last message", d.At.Sub(noon), d.Why)
		}
	}
	if zeros < 300 || len(p.asked) != 0 || p.waiting > 0 {
		p.story(t)
		t.Errorf("got %d decisions of 720 at zero, %d instances at the end and %v messages waiting, want 300, none and none", zeros, len(p.asked), p.waiting)
	}
}

// a pool of which only the depth is known follows its load all the same.
func TestTheDepthAloneIsEnough(t *testing.T) {
	for _, policy := range []Policy{{Max: 100}, {Max: 100, Slots: 10, Handling: time.Second}} {
		p := &pool{
			policy: policy, slots: 10, handling: constant(1), start: 30, interval: 10, random: randomOf(1),
			arrival: func(s int) float64 {
				if s > 600 && s < 1800 {
					return 200
				}
				if s > 2400 {
					return 0
				}
				return 20
			},
			blind: func(_ int, s *Sample) { *s = Sample{At: s.At, Instances: s.Instances, Depth: s.Depth} },
		}
		p.run(5400)
		if waiting, most := p.worst(150); waiting > 100 || most > 80 { // half of the peak is over
			p.story(t)
			t.Errorf("%+v: got %d waiting and %d instances, want at most 100 and 80", policy, waiting, most)
		}
		if len(p.asked) != 1 {
			p.story(t)
			t.Errorf("%+v: got %d instances at the end, want 1", policy, len(p.asked))
		}
	}
}
