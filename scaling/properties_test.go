package scaling

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// arbitraryPolicy is one that Check accepts or not.
func arbitraryPolicy(t *rapid.T) Policy {
	durations := rapid.OneOf(rapid.Int64Range(0, int64(time.Hour)), rapid.Int64())
	shares := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, -1, 2, math.NaN(), 1e-300}))
	return Policy{
		Min:         rapid.IntRange(-1, 10).Draw(t, "min"),
		ToZero:      rapid.Bool().Draw(t, "to zero"),
		Max:         rapid.IntRange(-1, 50).Draw(t, "max"),
		Target:      time.Duration(durations.Draw(t, "target")),
		Utilization: shares.Draw(t, "utilization"),
		Spare:       rapid.IntRange(-1, 5).Draw(t, "spare"),
		Start:       time.Duration(durations.Draw(t, "start")),
		DownAfter:   time.Duration(durations.Draw(t, "down after")),
		Slots:       rapid.IntRange(-1, 100).Draw(t, "slots of the policy"),
		Handling:    time.Duration(durations.Draw(t, "handling of the policy")),
		CPU:         shares.Draw(t, "CPU"),
		Memory:      shares.Draw(t, "memory"),
		Forecast:    rapid.Bool().Draw(t, "forecast"),
	}
}

// arbitraryHistory has samples in any order, at times that may be the same.
func arbitraryHistory(t *rapid.T) (h History) {
	at := noon
	for range rapid.IntRange(0, 40).Draw(t, "samples") {
		at = at.Add(time.Duration(rapid.OneOf(
			rapid.Int64Range(0, int64(time.Minute)),
			rapid.Int64Range(-int64(day), int64(2*day)),
			rapid.Just(int64(0)),
		).Draw(t, "step")))
		s := arbitrary(t, "sample")
		s.At = at
		h = append(h, s)
	}
	return h
}

// whatever was measured, in whatever order, there are neither fewer instances than the bounds
// allow nor more, one sample alone adds none beyond a step, and the same history leads to the same decision.
func TestDecisionsKeepTheBoundsWhateverWasMeasured(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, h := arbitraryPolicy(t), arbitraryHistory(t)
		before := slices.Clone(h)
		d := p.Decide(h)
		r := p.rules()
		if d.Instances < r.least || d.Instances > r.most {
			t.Fatalf("got %d instances, want %d…%d: %s", d.Instances, r.least, r.most, d.Why)
		}
		if !p.ToZero && d.Instances < 1 {
			t.Fatalf("got %d instances, want at least one: %s", d.Instances, d.Why)
		}
		alone := p.Decide(h[max(len(h)-1, 0):])
		if step := max(alone.From+max(alone.From, 4), r.least); alone.From < math.MaxInt/2 && alone.Instances > step {
			t.Fatalf("got %d instances after %d, want at most %d: %s", alone.Instances, alone.From, step, alone.Why)
		}
		if d.Wanted < 0 || d.Why == "" {
			t.Fatalf("got %d wanted, because %q, want a number and a sentence", d.Wanted, d.Why)
		}
		if again := p.Decide(h); again != d {
			t.Fatalf("got %+v, and then %+v of the same history", d, again)
		}
		for i := range h {
			if !sameSample(&h[i], &before[i]) {
				t.Fatalf("sample %d was changed from %+v to %+v", i, before[i], h[i])
			}
		}
	})
}

// a figure that is absurd decides nothing: it is as good as unknown.
func TestAbsurdFiguresAreUnknown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, h := arbitraryPolicy(t), arbitraryHistory(t)
		absurd := slices.Clone(h)
		for i := range h {
			s, a := &h[i], &absurd[i]
			bad := Known(rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, -1e-9, 1e300}).Draw(t, "absurd"))
			switch rapid.IntRange(0, 5).Draw(t, "figure") {
			case 0:
				s.Arrival, a.Arrival, s.Service, a.Service = Optional[float64]{}, bad, Optional[float64]{}, bad
			case 1:
				s.Handling, a.Handling = Optional[time.Duration]{}, Known(time.Duration(math.MinInt64))
			case 2:
				s.Depth, a.Depth, s.Visible, a.Visible = Optional[int64]{}, Known(int64(math.MinInt64)), Optional[int64]{}, Known(int64(math.MaxInt64))
			case 3:
				s.Slots, a.Slots = Optional[float64]{}, bad
			case 4:
				s.CPU, a.CPU, s.Memory, a.Memory = Optional[float64]{}, bad, Optional[float64]{}, Known(1.5)
			case 5:
				s.Ready, a.Ready, s.Running, a.Running = Optional[int]{}, Known(-1), Optional[int]{}, Known(math.MinInt)
			}
		}
		if want, got := p.Decide(h), p.Decide(absurd); got != want {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
	})
}

// sameSample treats NaN as equal to itself.
func sameSample(a, b *Sample) bool {
	x, y := *a, *b
	for _, o := range []*Optional[float64]{&x.Arrival, &x.Service, &x.Slots, &y.Arrival, &y.Service, &y.Slots, &x.CPU, &x.Memory, &y.CPU, &y.Memory} {
		if math.IsNaN(o.Or(0)) {
			*o = Known(0.0)
		}
	}
	return x == y
}

// no instance is removed while a figure is unknown that may call for it, however few are
// wanted as far as is known. Only what Max allows counts then.
func TestNothingIsRemovedWhileAFigureIsUnknown(t *testing.T) {
	hide := map[string]func(*Sample){
		"depth":           func(s *Sample) { s.Depth = Optional[int64]{} },
		"absurd depth":    func(s *Sample) { s.Depth = Known(int64(-1)) },
		"visible, depth":  func(s *Sample) { s.Visible, s.Depth = Optional[int64]{}, Optional[int64]{} },
		"some reports":    func(s *Sample) { s.Ready = Known(s.Instances - 1) },
		"slots":           func(s *Sample) { s.Slots = Optional[float64]{} },
		"absurd slots":    func(s *Sample) { s.Slots = Known(0.0) },
		"all but service": func(s *Sample) { *s = Sample{At: s.At, Instances: s.Instances, Service: s.Service} },
		"handling": func(s *Sample) {
			s.Handling, s.Running = Optional[time.Duration]{}, Optional[int]{}
		},
		"all but depth": func(s *Sample) { *s = Sample{At: s.At, Instances: s.Instances, Depth: s.Depth} },
	}
	rapid.Check(t, func(t *rapid.T) {
		what := rapid.SampledFrom(sortedKeys(hide)).Draw(t, "hidden")
		s := measured(rapid.IntRange(2, 20).Draw(t, "instances"), 0, 1, 1)
		if p := (Policy{}); p.Decide(every10s(repeat(70, s)...)).Instances >= s.Instances {
			t.Fatalf("with all figures none was removed: the check proves nothing")
		}
		hide[what](&s)
		if d := (Policy{}).Decide(every10s(repeat(70, s)...)); d.Instances < d.From {
			t.Fatalf("without %s: got %s", what, d.Why)
		}
	})
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// an hour of low figures with some of them missing now and then removes instances all the same.
func TestAFigureThatIsMissingNowAndThenDoesNotStopTheWait(t *testing.T) {
	all := repeat(70, measured(12, 0, 28, 28))
	for i := 1; i < len(all)-1; i += 3 {
		all[i] = Sample{Instances: 12}
	}
	if d := (Policy{}).Decide(every10s(all...)); d.Instances != 7 {
		t.Errorf("got %s, want 7 instances", d.Why)
	}
}

// a longer backlog never calls for fewer instances, and neither do more arrivals.
func TestMoreWorkNeverWantsFewer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{Max: 1000}
		n := rapid.IntRange(0, 50).Draw(t, "instances")
		fewer := measured(n, rapid.Int64Range(0, 1e6).Draw(t, "waiting"),
			rapid.Float64Range(0, 1e4).Draw(t, "in"), rapid.Float64Range(0, 1e4).Draw(t, "out"))
		past := repeat(rapid.IntRange(0, 70).Draw(t, "samples"), fewer)
		more := fewer
		extra := rapid.Int64Range(0, 1e6).Draw(t, "more waiting")
		more.Visible, more.Depth = Known(fewer.Visible.Or(0)+extra), Known(fewer.Depth.Or(0)+extra)
		more.Arrival = Known(fewer.Arrival.Or(0) + rapid.Float64Range(0, 1e4).Draw(t, "more in"))
		a, b := p.Decide(every10s(append(past, fewer)...)), p.Decide(every10s(append(past, more)...))
		if b.Instances < a.Instances || b.Wanted < a.Wanted {
			t.Fatalf("got\n%s\nand with more work\n%s", a.Why, b.Why)
		}
	})
}

// a history that is shorter than DownAfter, such as that of an agent that was restarted without
// its file, removes nothing; neither does one with a long gap, or with samples at the same time.
func TestAShortHistoryRemovesNothing(t *testing.T) {
	idle := measured(12, 0, 0, 0)
	for samples := range 31 {
		d := Policy{}.Decide(every10s(repeat(samples, idle)...))
		if samples > 0 && d.Instances != 12 {
			t.Fatalf("%d samples: got %s, want 12 instances", samples, d.Why)
		}
	}
	if d := (Policy{}).Decide(every10s(repeat(31, idle)...)); d.Instances != 1 {
		t.Errorf("31 samples, of 5 min: got %s, want 1 instance", d.Why)
	}
	gap := every10s(repeat(65, idle)...)
	for i := range 40 {
		gap[i].At = gap[i].At.Add(-310 * time.Second)
	}
	if d := (Policy{}).Decide(gap); d.Instances != 12 {
		t.Errorf("with a gap of more than half of DownAfter: got %s, want 12 instances", d.Why)
	}
	low := measured(12, 0, 1, 1)
	silent := every10s(append(repeat(60, with(low, func(s *Sample) { s.Ready = Known(11) })), repeat(15, low)...)...)
	if d := (Policy{}).Decide(silent); d.Instances != 12 {
		t.Errorf("while one did not report: got %s, want 12 instances", d.Why)
	}
	same := every10s(repeat(65, idle)...)
	for i := range same {
		same[i].At = noon
	}
	if d := (Policy{}).Decide(same); d.Instances != 12 {
		t.Errorf("all at the same time: got %s, want 12 instances", d.Why)
	}
	future := append(every10s(repeat(65, idle)...), idle)
	future[65].At = noon.Add(-time.Hour)
	if d := (Policy{}).Decide(future); d.Instances != 12 {
		t.Errorf("after samples from the future: got %s, want 12 instances", d.Why)
	}
}

// constant load with noise neither adds nor removes instances once it has settled.
func TestConstantLoadWithNoiseDoesNotFlap(t *testing.T) {
	if testing.Short() {
		t.Skip("plays days")
	}
	for seed := range uint64(4) {
		for _, load := range []float64{0.5, 3, 31, 32, 33, 100, 1000} {
			p := &pool{
				policy: Policy{Max: 1000}, arrival: constant(load), handling: constant(1), slots: 4, start: 30, interval: 10,
				random: randomOf(seed),
			}
			p.run(4 * 3600)
			changes := 0
			for _, d := range p.decided[360:] { // of 3 h
				if d.Instances != d.From {
					changes++
				}
			}
			if changes > 2 {
				t.Errorf("seed %d, %v/s: got %d changes in 3 hours, want at most 2", seed, load, changes)
			}
		}
	}
}
