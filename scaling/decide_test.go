package scaling

import (
	"math"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// measured is a sample of a pool that reports everything. One instance has 20 slots and serves 5 5/6 messages a second.
func measured(instances int, waiting int64, in, out float64) Sample {
	running := int64(out * 24 / 7)
	return Sample{
		At: noon, Instances: instances, Ready: Known(instances),
		Depth: Known(waiting + running), Visible: Known(waiting), InWork: Known(running), Delayed: Known(int64(0)),
		Arrival: Known(in), Service: Known(out), Handling: Known(time.Second * 24 / 7), Slots: Known(20.0),
		Running: Known(int(running)),
	}
}

// every10s is a history that ends at noon, with samples every 10 s.
func every10s(samples ...Sample) (h History) {
	for i, s := range samples {
		s.At = noon.Add(time.Duration(i-len(samples)+1) * 10 * time.Second)
		h.Add(s)
	}
	return h
}

func repeat(n int, s Sample) []Sample {
	all := make([]Sample, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func with(s Sample, change func(*Sample)) Sample {
	change(&s)
	return s
}

// each decision is a sentence with its numbers.
func TestEachDecisionIsASentenceWithItsNumbers(t *testing.T) {
	depthOnly := func(instances int, depth int64) Sample {
		return Sample{At: noon, Instances: instances, Depth: Known(depth)}
	}
	idle := measured(12, 0, 28, 28)
	using := func(cpu, memory float64) Sample {
		return with(measured(6, 0, 28, 28), func(s *Sample) { s.CPU, s.Memory = Known(cpu), Known(memory) })
	}
	for name, c := range map[string]struct {
		policy  Policy
		history History
		want    string
	}{
		"nothing was measured": {
			want: "no decision: nothing was measured yet",
		},
		"growth bounded by a step": {
			history: every10s(measured(6, 4200, 28, 35)),
			want:    "6 → 12: 4,200 waiting, 28/s in, 35/s out, would drain in 10 min, target 1 min; 21 wanted, at most doubled in one step",
		},
		"growth from few": {
			history: every10s(measured(1, 4200, 28, 5)),
			want:    "1 → 5: 4,200 waiting, 28/s in, 5/s out, would not drain, target 1 min; 24 wanted, at most 4 more in one step",
		},
		"growth as wanted": {
			policy:  Policy{Max: 30},
			history: every10s(measured(12, 4200, 28, 35)),
			want:    "12 → 21: 4,200 waiting, 28/s in, 35/s out, would drain in 10 min, target 1 min; 21 wanted",
		},
		"growth bounded by Max": {
			history: every10s(measured(12, 4200, 28, 35)),
			want:    "12 → 20: 4,200 waiting, 28/s in, 35/s out, would drain in 10 min, target 1 min; 21 wanted, 20 at most",
		},
		"as many as there may be": {
			history: every10s(measured(20, 4200, 90, 90)),
			want:    "20: stays, 4,200 waiting, 90/s in, 90/s out, would not drain, target 1 min; 35 wanted, 20 at most",
		},
		"more than there may be": {
			history: every10s(measured(30, 0, 28, 28)),
			want:    "30 → 20: none waiting, 28/s in, 28/s out; 6 wanted, fewer wanted for 0 s of 5 min, 20 at most",
		},
		"spare": {
			policy:  Policy{Spare: 2},
			history: every10s(measured(6, 0, 28, 28)),
			want:    "6 → 8: none waiting, 28/s in, 28/s out; 8 wanted, 2 of them spare",
		},
		"a short peak": {
			history: every10s(append(repeat(30, measured(6, 0, 14, 14)), measured(6, 1000, 28, 28))...),
			want:    "6: stays, 1,000 waiting, 16/s in, 16/s out; 8 wanted, but full slots drain them in 50 s, target 1 min",
		},
		"a shorter one": {
			policy:  Policy{Utilization: 0.3},
			history: every10s(append(repeat(30, measured(12, 0, 14, 14)), measured(12, 1000, 14, 14))...),
			want:    "12: stays, 1,000 waiting, 14/s in, 14/s out; 18 wanted, but full slots drain them in 18 s, target 1 min",
		},
		"a peak that is gone before a new instance would work": {
			policy:  Policy{Start: 2 * time.Minute, Target: 10 * time.Second},
			history: every10s(append(repeat(30, measured(6, 0, 14, 14)), measured(6, 1000, 14, 14))...),
			want:    "6: stays, 1,000 waiting, 14/s in, 14/s out; 25 wanted, but full slots drain them in 48 s, target 10 s, a new instance takes 2 min",
		},
		"a peak that should be gone by now": {
			policy: Policy{Max: 100},
			history: every10s(append(repeat(30, measured(6, 0, 14, 14)), repeat(7, with(measured(6, 1000, 14, 14), func(s *Sample) {
				s.Service, s.Running = Optional[float64]{}, Optional[int]{}
			}))...)...),
			want: "6 → 7: 1,000 waiting, 14/s in; 7 wanted",
		},
		"instances that do not come are not counted on": {
			policy: Policy{Target: 90 * time.Second},
			history: every10s(append(repeat(30, with(measured(12, 0, 28, 28), func(s *Sample) { s.Ready = Known(6) })),
				with(measured(12, 2700, 28, 28), func(s *Sample) { s.Ready = Known(6) }))...),
			want: "12 → 13: 2,700 waiting, 28/s in, 28/s out, would not drain, target 90 s; 13 wanted",
		},
		"full slots that just keep up": {
			policy:  Policy{Utilization: 1},
			history: every10s(measured(6, 500, 35*(1+5e-10), 35)),
			want:    "6 → 8: 500 waiting, 35/s in, 35/s out, would not drain, target 1 min; 8 wanted",
		},
		"more than one sample may call for": {
			policy:  Policy{Max: 50},
			history: every10s(measured(1, 0, 0, 0), measured(20, 90000, 80, 80)),
			want:    "20 → 40: 90,000 waiting, 40/s in, 40/s out, would not drain, target 1 min; 330 wanted, at most doubled in one step",
		},
		"growth by steps while Target leaves time for them": {
			policy:  Policy{Target: 5 * time.Minute},
			history: every10s(repeat(2, measured(6, 9000, 60, 35))...),
			want:    "6 → 12: 9,000 waiting, 60/s in, 35/s out, would not drain, target 5 min; 20 wanted, at most doubled in one step",
		},
		"and at once where it does not": {
			policy:  Policy{Target: 5 * time.Minute, Start: 3 * time.Minute},
			history: every10s(repeat(2, measured(6, 9000, 60, 35))...),
			want:    "6 → 20: 9,000 waiting, 60/s in, 35/s out, would not drain, target 5 min; 23 wanted, 20 at most",
		},
		"what is being drained counts on the past": {
			policy:  Policy{DownAfter: 20 * time.Second},
			history: every10s(measured(12, 3000, 0, 70), measured(12, 2300, 0, 70), measured(12, 1100, 0, 70), measured(12, 400, 0, 70)),
			want:    "12 → 10: 400 waiting, 0/s in, 70/s out; 2 wanted now, at most 10 within 20 s",
		},
		"and what has been drained does not": {
			policy:  Policy{DownAfter: 20 * time.Second},
			history: every10s(measured(12, 3000, 0, 70), measured(12, 2300, 0, 70), measured(12, 1100, 0, 70), measured(12, 0, 0, 70)),
			want:    "12 → 1: none waiting, 0/s in, 70/s out; 1 wanted",
		},
		"more than the sample before called for": {
			policy:  Policy{Max: 500},
			history: every10s(measured(20, 9000, 80, 80), measured(20, 90000, 80, 80)),
			want:    "20 → 50: 90,000 waiting, 80/s in, 80/s out, would not drain, target 1 min; 449 wanted, 50 at the sample before",
		},
		"what is delayed may come at any time": {
			policy:  Policy{ToZero: true},
			history: every10s(repeat(70, with(measured(1, 0, 0, 0), func(s *Sample) { s.Depth, s.Delayed = Known(int64(3)), Known(int64(3)) }))...),
			want:    "1: stays, none waiting, 0/s in, 0/s out; 1 wanted",
		},
		"and wakes a pool without instances": {
			policy:  Policy{ToZero: true},
			history: every10s(with(measured(0, 0, 0, 0), func(s *Sample) { s.Depth, s.Delayed = Known(int64(3)), Known(int64(3)) })),
			want:    "0 → 1: none waiting, 0/s in, 0/s out; 1 wanted",
		},
		"fewer wanted for a while": {
			history: every10s(append(repeat(60, measured(12, 0, 56, 56)), repeat(25, idle)...)...),
			want:    "12: stays, none waiting, 28/s in, 28/s out; 6 wanted, fewer wanted for 3.8 min of 5 min",
		},
		"hardly fewer": {
			history: every10s(measured(6, 0, 23, 23)),
			want:    "6: stays, none waiting, 23/s in, 23/s out; 5 wanted, hardly fewer",
		},
		"fewer wanted for long": {
			history: every10s(repeat(61, idle)...),
			want:    "12 → 7: none waiting, 28/s in, 28/s out; 6 wanted, and a tenth more is kept",
		},
		"a peak in the window": {
			history: every10s(append(repeat(30, measured(12, 0, 42, 42)), repeat(35, idle)...)...),
			want:    "12 → 8: none waiting, 28/s in, 28/s out; 6 wanted now, at most 8 within 5 min",
		},
		"empty for long": {
			history: every10s(repeat(70, measured(3, 0, 0, 0))...),
			want:    "3 → 1: none waiting, 0/s in, 0/s out; 0 wanted, 1 at least",
		},
		"empty for long, to zero": {
			policy:  Policy{ToZero: true},
			history: every10s(repeat(70, measured(3, 0, 0, 0))...),
			want:    "3 → 0: none waiting, 0/s in, 0/s out; 0 wanted",
		},
		"the depth is unknown": {
			history: every10s(with(measured(12, 0, 28, 28), func(s *Sample) { s.Depth, s.Visible = Optional[int64]{}, Optional[int64]{} })),
			want:    "12: stays, the depth is unknown",
		},
		"the depth is unknown, and there are too few": {
			policy:  Policy{Min: 2},
			history: every10s(Sample{Instances: 1}),
			want:    "1 → 2: the depth is unknown, 2 at least",
		},
		"some do not report": {
			history: every10s(repeat(70, with(idle, func(s *Sample) { s.Ready = Known(11) }))...),
			want:    "12: stays, none waiting, 28/s in, 28/s out; 6 wanted, but none is removed without all figures; 11 of 12 instances report",
		},
		"only the depth is known": {
			history: every10s(depthOnly(1, 4200)),
			want:    "1 → 3: at most 4,136 waiting; 3 wanted; unknown: handling time, slots",
		},
		"only the depth is known, and fewer are wanted": {
			history: every10s(repeat(70, depthOnly(4, 30))...),
			want:    "4: stays, none waiting; 1 wanted, but none is removed without all figures; unknown: handling time, slots",
		},
		"only the depth is known, and it falls": {
			policy: Policy{Slots: 1, Handling: time.Second},
			history: every10s(append(repeat(20, depthOnly(5, 0)), depthOnly(5, 380), depthOnly(5, 330), depthOnly(5, 280),
				depthOnly(5, 230), depthOnly(5, 180), depthOnly(5, 130))...),
			want: "5: stays, at most 125 waiting; 3 wanted, but none is removed until they are drained",
		},
		"only the depth is known, and it is zero": {
			history: every10s(repeat(70, depthOnly(4, 0))...),
			want:    "4 → 1: none waiting; 0 wanted, 1 at least",
		},
		"the policy states what instances do not": {
			policy:  Policy{Slots: 20, Handling: 2 * time.Second},
			history: every10s(repeat(70, depthOnly(4, 30))...),
			want:    "4 → 3: none waiting; 2 wanted, and a tenth more is kept",
		},
		"handling by Little's law": {
			history: every10s(repeat(6, with(measured(6, 4200, 28, 35), func(s *Sample) { s.Handling = Optional[time.Duration]{} }))...),
			want:    "6 → 20: 4,200 waiting, 28/s in, 35/s out, would drain in 10 min, target 1 min; 21 wanted, 20 at most",
		},
		"a service of next to nothing": {
			history: every10s(measured(6, 4200, 0, 1e-307)),
			want:    "6 → 12: 4,200 waiting, 0/s in, 0/s out, would not drain, target 1 min; 15 wanted, at most doubled in one step",
		},
		"CPU above its bound": {
			policy:  Policy{CPU: 0.7, Memory: 0.8},
			history: every10s(repeat(6, using(0.92, 0.4))...),
			want:    "6 → 8: none waiting, 28/s in, 28/s out; 8 wanted because instances use 92 % of their CPU, target 70 %",
		},
		"memory above its bound": {
			policy:  Policy{CPU: 0.7, Memory: 0.5},
			history: every10s(repeat(6, using(0.3, 0.9))...),
			want:    "6 → 11: none waiting, 28/s in, 28/s out; 11 wanted because instances use 90 % of their memory, target 50 %",
		},
		"CPU below its bound keeps the instances that it needs": {
			policy:  Policy{CPU: 0.7},
			history: every10s(repeat(70, with(idle, func(s *Sample) { s.CPU = Known(0.55) }))...),
			want:    "12 → 11: none waiting, 28/s in, 28/s out; 10 wanted because instances use 55 % of their CPU, target 70 %, and a tenth more is kept",
		},
		"CPU without a bound": {
			history: every10s(repeat(6, using(0.92, 0.9))...),
			want:    "6: stays, none waiting, 28/s in, 28/s out; 6 wanted",
		},
		"CPU that nobody reports": {
			policy:  Policy{CPU: 0.7, Memory: 0.8},
			history: every10s(repeat(70, idle)...),
			want:    "12: stays, none waiting, 28/s in, 28/s out; 6 wanted, but none is removed without all figures; unknown: CPU, memory",
		},
		"CPU that is absurd": {
			policy:  Policy{CPU: 0.7, Memory: 0.8},
			history: every10s(repeat(70, with(idle, func(s *Sample) { s.CPU, s.Memory = Known(92.0), Known(math.NaN()) }))...),
			want:    "12: stays, none waiting, 28/s in, 28/s out; 6 wanted, but none is removed without all figures; unknown: CPU, memory",
		},
		"absurd figures": {
			history: every10s(with(measured(6, 4200, math.NaN(), -1), func(s *Sample) { s.Slots, s.Handling = Known(math.Inf(1)), Known(-time.Second) })),
			want:    "6 → 9: 4,200 waiting; 9 wanted; unknown: arrivals, handling time, slots",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.Decide(c.history).Why; got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestAPolicyIsChecked(t *testing.T) {
	good := []Policy{
		{},
		{Min: 2, Max: 2, Target: time.Millisecond, Utilization: 1, Spare: 3, Start: time.Millisecond, DownAfter: time.Millisecond, Slots: 1, Handling: time.Millisecond, Forecast: true},
		{Min: 30}, {ToZero: true, Max: 1}, {CPU: 0.7, Memory: 1},
	}
	for _, p := range good {
		if err := p.Check(); err != nil {
			t.Errorf("%+v: got %v, want no error", p, err)
		}
	}
	for want, p := range map[string]Policy{
		"Min is -1: it must not be negative":                                                       {Min: -1},
		"Max is -1: it must not be negative":                                                       {Max: -1},
		"Min is 3 and Max 2: Min must not exceed Max":                                              {Min: 3, Max: 2},
		"Min is 1 with ToZero: leave out one of them":                                              {Min: 1, ToZero: true},
		"Target is -1ns: it must not be negative":                                                  {Target: -1},
		"Utilization is 1.1: it must be above 0 and at most 1":                                     {Utilization: 1.1},
		"Utilization is NaN: it must be above 0 and at most 1":                                     {Utilization: math.NaN()},
		"CPU is 70: it must be above 0 and at most 1":                                              {CPU: 70},
		"Memory is -0.1: it must be above 0 and at most 1":                                         {Memory: -0.1},
		"Spare is -1: it must not be negative":                                                     {Spare: -1},
		"Start is -1ns: it must not be negative":                                                   {Start: -1},
		"DownAfter is -1ns: it must not be negative":                                               {DownAfter: -1},
		"Slots is -1: it must not be negative":                                                     {Slots: -1},
		"Handling is -1ns: it must not be negative":                                                {Handling: -1},
		"Max is -2: it must not be negative\nscaling policy: Spare is -2: it must not be negative": {Max: -2, Spare: -2},
	} {
		if err := p.Check(); err == nil || err.Error() != "scaling policy: "+want {
			t.Errorf("%+v: got %v, want %s", p, err, want)
		}
	}
}

// A-03, N-09: jobs that need 5.5 instances' CPU, in slots of which a few are enough. With a bound of 75 % there are 8 instances soon,
// and never more. Memory that each instance has for itself calls for no more than twice as many as the load.
func TestCPUAndMemorySettle(t *testing.T) {
	const work = 5.5 // instances' CPU
	for _, c := range []struct {
		name   string
		policy Policy
		memory float64 // of each instance, however many there are
		want   int
		most   int // at any time
	}{
		{"no bound", Policy{DownAfter: time.Minute}, 0.3, 1, 2},
		{"CPU", Policy{DownAfter: time.Minute, CPU: 0.75}, 0.3, 8, 8},
		{"CPU and memory", Policy{DownAfter: time.Minute, CPU: 0.75, Memory: 0.5}, 0.3, 8, 8},
		{"memory", Policy{DownAfter: time.Minute, Memory: 0.5}, 0.95, 2, 2},
	} {
		var h History
		n, ready, most := 2, 2, 0
		for i := range 360 {
			s := Sample{
				At: noon.Add(time.Duration(i) * 10 * time.Second), Instances: n, Ready: Known(ready), Depth: Known[int64](6), Visible: Known[int64](0),
				InWork: Known[int64](6), Delayed: Known[int64](0), Arrival: Known(100.0), Service: Known(100.0), Handling: Known(60 * time.Millisecond),
				Slots: Known(64.0), Running: Known(6), CPU: Known(min(work/float64(ready), 1)), Memory: Known(c.memory),
			}
			h.Add(s)
			if i%3 == 0 { // an instance takes 30 s
				ready = n
			}
			n = c.policy.Decide(h).Instances
			ready, most = min(ready, n), max(most, n)
		}
		if n != c.want || most > c.most {
			t.Errorf("%s: got %d instances after an hour and %d at most, want %d and %d", c.name, n, most, c.want, c.most)
		}
	}
}
