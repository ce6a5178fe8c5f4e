package replay

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/millrace/millrace/scaling"
)

// fed returns what a rule decides for samples an interval apart, each with the instances of the decision before.
func fed(r Rule, t *Trace, from int, samples ...scaling.Sample) []int {
	decide := r.Begin(t)
	var h scaling.History
	var got []int
	for i, s := range samples {
		s.At, s.Instances = begin.Add(time.Duration(i)*r.Interval), from
		h = append(h, s)
		from = decide(h).Instances
		got = append(got, from)
	}
	return got
}

func depths(values ...int64) []scaling.Sample {
	var samples []scaling.Sample
	for _, d := range values {
		s := scaling.Sample{Depth: scaling.Known(d), Visible: scaling.Known(d)}
		if d < 0 {
			s = scaling.Sample{}
		}
		samples = append(samples, s)
	}
	return samples
}

func repeated(d int64, n int) (values []int64) {
	for range n {
		values = append(values, d)
	}
	return values
}

// The rules are as their documents say.
func TestRulesDecideAsDocumented(t *testing.T) {
	trace := perSecond(1)
	trace.Max, trace.SLA = 100, 100*time.Second
	join := func(parts ...[]int64) (all []int64) {
		for _, p := range parts {
			all = append(all, p...)
		}
		return all
	}
	for _, c := range []struct {
		name   string
		rule   Rule
		from   int
		depths []int64
		want   []int // the last ones
	}{
		{"fixed", Fixed(7), 1, []int64{0}, []int{7}},
		// L-29 and X-06: 99 → a tenth, 100 and 999 → half, 1000 → all, none → one; unknown changes nothing.
		{"table", Table(), 3, []int64{-1, 0, 1, 99, 100, 999, 1000}, []int{3, 1, 10, 10, 50, 50, 100}},
		// Up: 4 pods or 100 % in each 15 s.
		{"keda up", KEDA{}.Rule(""), 1, repeated(500, 6), []int{5, 10, 20, 40, 80, 100}},
		// 10 % is tolerated: of 5 × 10.
		{"keda tolerance", KEDA{}.Rule(""), 10, []int64{54, 46, 50, 56}, []int{10, 10, 10, 12}},
		// Down after 5 min: 20 syncs of 15 s.
		{"keda holds", KEDA{}.Rule(""), 10, join(repeated(50, 1), repeated(5, 19)), []int{10, 10}},
		{"keda down", KEDA{}.Rule(""), 10, join(repeated(50, 1), repeated(5, 20)), []int{10, 1}},
		{"keda unknown", KEDA{}.Rule(""), 10, repeated(-1, 30), []int{10, 10}},
		// From zero at a poll, each second sync; to zero after 5 min without work.
		{"keda from zero", KEDA{}.Rule(""), 0, []int64{0, 5, 5, 50}, []int{0, 0, 1, 5}},
		{"keda to zero", KEDA{}.Rule(""), 1, repeated(0, 22), []int{1, 0, 0}},
		// Four more in a decision, and down to the formula.
		{"functions", Functions{}.Rule(""), 0, []int64{1, 160, 160, 160, 17, -1, 0}, []int{1, 5, 9, 10, 2, 2, 0}},
		// 100 s × 10 slots / 1 s = 1,000 messages an instance. Three minutes above, fifteen below.
		{"aws out", Backlog{}.Rule(""), 2, []int64{5000, 5000, 4500}, []int{2, 2, 5}},
		{"aws interrupted", Backlog{}.Rule(""), 2, []int64{5000, 5000, 2000, 5000, 5000}, []int{2, 2, 2}},
		{"aws in", Backlog{}.Rule(""), 30, repeated(0, 16), []int{30, 27, 25}},
		{"aws near the target", Backlog{}.Rule(""), 2, repeated(1900, 16), []int{2, 2}},
		{"aws below the target", Backlog{}.Rule(""), 2, repeated(1700, 15), []int{2, 1}},
	} {
		got := fed(c.rule, &trace, c.from, depths(c.depths...)...)
		for i := range got {
			got[i] = min(got[i], trace.Max)
		}
		last := got[len(got)-len(c.want):]
		for i := range last {
			if last[i] != c.want[i] {
				t.Errorf("%s: got %v, want it to end with %v", c.name, got, c.want)
				break
			}
		}
	}
}

// One more when the age exceeds half of the SLA, three minutes between; one fewer after ten minutes below a tenth of it.
func TestLatencyRange(t *testing.T) {
	trace := perSecond(1)
	trace.SLA = 100 * time.Second
	ages := func(age time.Duration, n int) (samples []scaling.Sample) {
		for range n {
			samples = append(samples, scaling.Sample{HeadAge: scaling.Known(age)})
		}
		return samples
	}
	for _, c := range []struct {
		name    string
		rule    Latency
		samples []scaling.Sample
		want    int
	}{
		{"at once", Latency{}, ages(51*time.Second, 1), 6},
		{"not again for three minutes", Latency{}, ages(51*time.Second, 18), 6},
		{"again after three minutes", Latency{}, ages(51*time.Second, 19), 7},
		{"within the range", Latency{}, ages(30*time.Second, 1000), 5},
		{"below it", Latency{}, ages(time.Second, 60), 5},
		{"below it for ten minutes", Latency{}, ages(time.Second, 61), 4},
		{"and ten more", Latency{}, ages(time.Second, 121), 3},
		{"jumps", Latency{Jump: 3, High: 20 * time.Second}, ages(30*time.Second, 1), 8},
		{"the last one remains", Latency{Jump: 9}, ages(0, 200), 1},
		{"interrupted", Latency{}, append(append(ages(0, 59), ages(30*time.Second, 1)...), ages(0, 59)...), 5},
		{"unknown", Latency{}, make([]scaling.Sample, 200), 5},
	} {
		got := fed(c.rule.Rule(""), &trace, 5, c.samples...)
		if got[len(got)-1] != c.want {
			t.Errorf("%s: got %d instances, want %d", c.name, got[len(got)-1], c.want)
		}
	}
}

// The agent is the policy.
func TestTheAgentIsThePolicy(t *testing.T) {
	trace := Burst(Small(), 3)
	p := For(&trace, scaling.Policy{})
	tight := trace
	tight.SLA = tight.Start
	if q := For(&tight, scaling.Policy{Spare: 2}); q.ToZero || q.Wait != 0 || q.Utilization != 0 || q.Spare != 2 {
		t.Errorf("an SLA that leaves no time to start: got %+v, want instances that are ready", q)
	}
	if q := For(&trace, scaling.Policy{Min: 3, Utilization: 0.5, Target: time.Second}); q.ToZero || q.Utilization != 0.5 || q.Target != time.Second || q.Check() != nil {
		t.Errorf("got %+v, want what the policy says", q)
	}
	if p.DownAfter != trace.Start || p.Utilization != 1 || p.Wait != trace.SLA/3 || !p.ToZero || p.Start != trace.Start || p.Max != trace.Max || p.Target != trace.SLA/2 || p.Check() != nil {
		t.Errorf("got %+v (%v) for the trace", p, p.Check())
	}
	r := Agent("agent", p)
	got := r.Begin(&trace)(scaling.History{{Instances: 3, Depth: scaling.Known(int64(5000))}})
	if want := p.Decide(scaling.History{{Instances: 3, Depth: scaling.Known(int64(5000))}}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	result := replayed(t, trace, r)
	said := 0
	for _, point := range result.Timeline {
		if point.Why != "" {
			said++
		}
	}
	if said != result.Changes || said < 10 {
		t.Errorf("got %d reasons for %d changes, want one each", said, result.Changes)
	}
}

// recorder returns a rule that keeps the samples and asks for n instances.
func recorder(n int, to *scaling.History) Rule {
	return Rule{Name: "recorder", Interval: 10 * time.Second, Begin: func(*Trace) func(scaling.History) scaling.Decision {
		return func(h scaling.History) scaling.Decision {
			*to = h
			return scaling.Decision{Instances: n}
		}
	}}
}

// A rule sees the depth of now, what instances report as of five seconds ago, and rates.
func TestWhatRulesSee(t *testing.T) {
	trace := perSecond(constant(30, 60, 60)...) // ten slots serve ten a second
	var h scaling.History
	replayed(t, trace, recorder(1, &h))
	s := h[3] // at 30 s: 900 have come, 300 have begun, 290 have ended
	want := scaling.Sample{
		At: begin.Add(30 * time.Second), Instances: 1, Ready: scaling.Known(1), Depth: scaling.Known[int64](610),
		Visible: scaling.Known[int64](600), InWork: scaling.Known[int64](10), Delayed: scaling.Known[int64](0), Running: scaling.Known(10),
		Arrival: scaling.Known(30.0), Service: scaling.Known(10.0), Slots: scaling.Known(10.0),
		Handling: scaling.Known(time.Second), HeadAge: s.HeadAge,
	}
	if s.Arrival.Or(0) < 29.999 || s.Arrival.Or(0) > 30.001 || s.Service.Or(0) < 9.999 || s.Service.Or(0) > 10.001 {
		t.Errorf("got rates of %v and %v, want 30 and 10", s.Arrival, s.Service)
	}
	s.Arrival, s.Service = want.Arrival, want.Service
	if s.Handling.Or(0).Round(time.Millisecond) == time.Second {
		s.Handling = want.Handling
	}
	if s != want {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if age := s.HeadAge.Or(0); age < 19*time.Second || age > 21*time.Second {
		t.Errorf("age of the head: got %v, want 20 s", age)
	}
	if h[0].Arrival.IsKnown() || h[0].Handling.IsKnown() {
		t.Errorf("the first sample: got %+v, want no rates", h[0])
	}

	trace.Initial = 0
	trace.Arrivals = make([]float64, 30)
	replayed(t, trace, recorder(0, &h))
	if last := h[len(h)-1]; last.Slots.IsKnown() || last.Handling.IsKnown() || last.Ready.Or(9) != 0 {
		t.Errorf("without instances: got %+v, want no figures of them", last)
	}
}

// A reading that fails is unknown, never zero; noise is within its bounds.
func TestReadingsFailAndAreOff(t *testing.T) {
	trace := perSecond(constant(30, 600, 0)...)
	var h scaling.History
	trace.Missing = 1
	replayed(t, trace, recorder(1, &h))
	for _, s := range h {
		if s != (scaling.Sample{At: s.At, Instances: 1}) {
			t.Fatalf("got %+v, want nothing known", s)
		}
	}
	trace.Missing, trace.Noise, trace.Seed = 0.3, 0.2, 5
	replayed(t, trace, recorder(1, &h))
	var unknown, off int
	for i, s := range h {
		depth, known := s.Depth.Get()
		if !known {
			unknown++
			continue
		}
		want := float64(10*i)*20 + 10
		if i > 0 && (float64(depth) < want*0.79-1 || float64(depth) > want*1.21+1) {
			t.Errorf("sample %d: got a depth of %d, want %v ± 20 %%", i, depth, want)
		}
		if i > 0 && (float64(depth) < want*0.98 || float64(depth) > want*1.02) {
			off++
		}
	}
	if unknown < 5 || unknown > 35 || off < 10 {
		t.Errorf("got %d unknown and %d off of %d, want about 18 and most others", unknown, off, len(h))
	}
}

// How the policy does in a closed loop: it holds the SLA with what For sets, also from zero and at the large size, and its last jobs do not wait ever
// longer while a backlog shrinks.
func TestThePolicyHoldsTheSLA(t *testing.T) {
	if testing.Short() {
		t.Skip("replays days")
	}
	for _, size := range []Size{Small(), Large()} {
		for _, trace := range Generated(size, 11) {
			trace.Arrivals = trace.Arrivals[:1440] // four hours
			if trace.Handlings != nil {
				trace.Handlings = trace.Handlings[:1440]
			}
			if trace.Poison != nil {
				trace.Poison = trace.Poison[:1440]
			}
			r := replayed(t, trace, Agent("agent", For(&trace, scaling.Policy{})))
			if r.LateShare() > 0.01 || r.Worst > 3*trace.SLA/2 {
				t.Errorf("%s: got %.3f %% late and a worst of %v, want at most 1 %% and not much more than %v", trace.Name, 100*r.LateShare(), r.Worst, trace.SLA)
			}
			if defaults := replayed(t, trace, Agent("agent", scaling.Policy{Start: trace.Start, Max: trace.Max})); r.InstanceHours > defaults.InstanceHours {
				t.Errorf("%s: got %.1f instance-hours, more than the %.1f of the defaults", trace.Name, r.InstanceHours, defaults.InstanceHours)
			}
		}
	}
}

// Figures that are wrong by a fifth and readings of which a fifth fails do not make the policy miss the SLA.
func TestThePolicyCopesWithWrongReadings(t *testing.T) {
	for _, trace := range []Trace{Burst(Small(), 12), Flash(Small(), 12)} {
		trace.Noise, trace.Missing = 0.2, 0.2
		r := replayed(t, trace, Agent("agent", For(&trace, scaling.Policy{})))
		if r.LateShare() > 0.01 {
			t.Errorf("%s: got %.3f %% late and a worst of %v, want at most 1 %%", trace.Name, 100*r.LateShare(), r.Worst)
		}
	}
}

// What waits for a retry is delayed, not visible; what went to the poison queue was taken off; and reports are five seconds old.
func TestReportsOfDelayedAndReadyOnes(t *testing.T) {
	trace := perSecond(constant(8, 1, 499)...)
	trace.Poison, trace.Initial, trace.Start = append([]float64{8}, make([]float64, 499)...), 0, 28*time.Second
	var h scaling.History
	replayed(t, trace, recorder(1, &h))
	for i, want := range map[int]int{3: 0, 4: 1} {
		if got := h[i].Ready.Or(9); got != want {
			t.Errorf("after %d s: got %d ready, want %d: it is since 28 s", 10*i, got, want)
		}
	}
	// All fail at 29 s and 31 s, and wait until 48 s.
	if s := h[4]; s.Delayed.Or(0) != 8 || s.Visible.Or(9) != 0 || s.Depth.Or(0) != 8 {
		t.Errorf("got %+v, want eight delayed and none visible", s)
	}
	off := 0.0
	for _, s := range h {
		off += 10 * s.Service.Or(0)
	}
	near(t, "taken off", off, 8)
}

// periodic returns four hours of a load that repeats: shape says which share of the rate comes at each share of a period.
func periodic(size Trace, rate float64, period time.Duration, shape func(x float64) float64) Trace {
	t, random := size, rand.New(rand.NewPCG(35, uint64(period)))
	t.Step, t.Arrivals = generatedStep, nil
	for at := time.Duration(0); at < 4*time.Hour; at += t.Step {
		mean := rate * t.Step.Seconds() * shape(float64(at%period)/float64(period))
		t.Arrivals = append(t.Arrivals, max(math.Round(mean+math.Sqrt(mean)*random.NormFloat64()), 0))
	}
	return t
}

func most(r *Result) (instances int) {
	for _, p := range r.Timeline {
		instances = max(instances, p.Instances)
	}
	return instances
}

func on(from float64) func(float64) float64 {
	return func(x float64) float64 {
		if x < from {
			return 0
		}
		return 1
	}
}

var shapes = []struct {
	name string
	load func(x float64) float64
}{
	{"half on", on(0.5)}, {"a fifth on", on(0.8)}, {"rising sawtooth", func(x float64) float64 { return x }},
	{"falling sawtooth", func(x float64) float64 { return 1 - x }}, {"there and back", func(x float64) float64 { return 2 * min(x, 1-x) }},
}

// stepped is the size of the steps: 60 jobs a second call for 10 instances, and for 17 with the backlog of a start.
var stepped = Trace{Name: "periodic", Handling: time.Second, Slots: 8, Start: 45 * time.Second, SLA: 75 * time.Second, Initial: 1, Max: 40}

// on loads that come and go, the defaults of the policy take at most the instance-hours of KEDA's defaults, with no more late jobs.
// The policy was chosen with periods of 5, 10, 20, 30 and 60 min of the first size in view; these are others.
func TestStepsAndSawteethTakeNoMoreThanKEDA(t *testing.T) {
	small, quick, long := stepped, stepped, stepped
	small.Slots, small.Start, small.SLA, small.Max = 4, 30*time.Second, time.Minute, 30
	quick.Handling, quick.Start, quick.SLA, quick.Max = 250*time.Millisecond, time.Minute, 90*time.Second, 30
	long.Handling, long.Slots = 3*time.Second, 16
	for _, size := range []struct {
		Trace
		rate    float64
		periods []int // minutes
	}{
		{stepped, 60, []int{7, 13, 25, 40, 55}}, {small, 25, []int{7, 25}},
		{quick, 200, []int{7, 13}}, {long, 30, []int{13, 40}},
	} {
		for _, shape := range shapes {
			for _, minutes := range size.periods {
				trace := periodic(size.Trace, size.rate, time.Duration(minutes)*time.Minute, shape.load)
				agent := replayed(t, trace, Agent("agent", scaling.Policy{Start: trace.Start, Max: trace.Max}))
				keda := replayed(t, trace, KEDA{}.Rule("KEDA"))
				t.Logf("| %v/s, %s, %d min | %.1f | %.2f %% | %.1f | %.2f %% |", size.rate, shape.name, minutes,
					agent.InstanceHours, 100*agent.LateShare(), keda.InstanceHours, 100*keda.LateShare())
				if agent.InstanceHours > keda.InstanceHours || agent.Late > keda.Late {
					t.Error("these are more instance-hours or more late jobs than KEDA's")
				}
			}
		}
		if testing.Short() {
			break
		}
	}
}

// large draws a load of hundreds a second that comes and goes, for instances that take nearly or quite as long to start as jobs may take.
func large(random *rand.Rand) Trace {
	rate := 200 + 600*random.Float64()
	handling := []float64{0.3, 0.5, 1, 2, 3, 5}[random.IntN(6)]
	t := Trace{
		Handling: seconds(handling), Slots: 1 << random.IntN(5), Start: 90 * time.Second,
		SLA: []time.Duration{90 * time.Second, 2 * time.Minute}[random.IntN(2)], Initial: 1,
	}
	needed := rate * handling / float64(t.Slots)
	t.Max = int(needed*(2+3*random.Float64())) + 2
	shape := shapes[random.IntN(len(shapes))]
	period := time.Duration(5+random.IntN(56)) * time.Minute
	t.Name = fmt.Sprintf("%.0f/s of %v, %d slots, SLA %v, %.0f needed, %d at most, %s, %v", rate, t.Handling, t.Slots, t.SLA, needed, t.Max, shape.name, period)
	return periodic(t, rate, period, shape.load)
}

// as above for large loads, with little time to start. Two figures are not KEDA's, and scaling/DESIGN.md says why: if the start takes all
// the time that jobs have, 0.1 % more may be late, and where KEDA is late, the agent may take more instance-hours to be in time.
func TestLargeStepsAndSawteethTakeNoMoreThanKEDA(t *testing.T) {
	const lateByStart, paidForLess = 0.001, 4. / 3
	random := rand.New(rand.NewPCG(35, 2))
	loads, more := 60, 0
	if testing.Short() {
		loads = 12
	}
	for range loads {
		trace := large(random)
		agent := replayed(t, trace, Agent("agent", scaling.Policy{Start: trace.Start, Max: trace.Max}))
		keda := replayed(t, trace, KEDA{}.Rule("KEDA"))
		late, hours := keda.LateShare(), keda.InstanceHours
		if trace.SLA <= trace.Start {
			late += lateByStart
		}
		if agent.InstanceHours > hours && agent.LateShare() < keda.LateShare() {
			hours *= paidForLess
			more++
		}
		row := fmt.Sprintf("| %s | %.1f | %.2f %% | %.1f | %.2f %% |", trace.Name, agent.InstanceHours, 100*agent.LateShare(), keda.InstanceHours, 100*keda.LateShare())
		t.Log(row)
		if agent.LateShare() > late || agent.InstanceHours > hours {
			t.Errorf("more instance-hours or more late jobs than KEDA's: %s", row)
		}
	}
	if more > loads/10 {
		t.Errorf("in %d of %d loads the agent takes more instance-hours than KEDA, want at most a tenth", more, loads)
	}
}

// a step calls for as many as drain what waits in the target, and no more: 30 were decided when it was taken for a ramp.
func TestAStepDoesNotOvershoot(t *testing.T) {
	trace := periodic(stepped, 60, 21*time.Minute, on(11./21))
	agent := replayed(t, trace, Agent("agent", scaling.Policy{Start: trace.Start, Max: trace.Max}))
	if n := most(&agent); n > 18 { // with the noise of the arrivals
		t.Errorf("got %d instances at most, want 17 or 18", n)
	}
	if keda := replayed(t, trace, KEDA{}.Rule("KEDA")); agent.InstanceHours > 0.65*keda.InstanceHours {
		t.Errorf("10 min on, 11 min off: got %.1f instance-hours, want at most 65 %% of KEDA's %.1f", agent.InstanceHours, keda.InstanceHours)
	}
}

// jobs that take longer for ten minutes, just after a growth has helped, do not make that growth useless: for minutes there was no other one.
func TestASlowPhaseAfterAGrowthDoesNotStopTheNext(t *testing.T) {
	trace := stepped
	trace.Step, trace.SLA = time.Second, 4*time.Minute
	for now := range 4 * 3600 {
		rate, handling := 10.0, time.Second
		if now%1800 >= 900 && now%1800 < 1600 {
			rate = 50
		}
		if now%1800 >= 1000 && now%1800 < 1600 {
			handling = 4 * time.Second
		}
		trace.Arrivals, trace.Handlings = append(trace.Arrivals, rate), append(trace.Handlings, handling)
	}
	r := replayed(t, trace, Agent("agent", For(&trace, scaling.Policy{})))
	t.Logf("%.1f instance-hours, %.2f %% late, at worst %v", r.InstanceHours, 100*r.LateShare(), r.Worst.Round(time.Second))
	if r.LateShare() > 0 {
		t.Error("some jobs are late")
	}
}

// a dependency that is slow at times makes few jobs long, which do not stand for all that wait: 40 instances were decided, and held.
func TestADependencyThatIsSlowAtTimesDoesNotScaleToTheMaximum(t *testing.T) {
	for _, c := range []struct {
		rate         float64
		slow, period int // seconds
		times        int
	}{{20, 60, 600, 20}, {20, 30, 600, 60}, {10, 60, 600, 20}, {20, 10, 120, 30}} {
		trace := stepped
		trace.Step, trace.SLA = time.Second, 4*time.Minute
		for now := range 4 * 3600 {
			handling := time.Second
			if now%c.period >= c.period-c.slow {
				handling = time.Duration(c.times) * time.Second
			}
			trace.Arrivals, trace.Handlings = append(trace.Arrivals, c.rate), append(trace.Handlings, handling)
		}
		r := replayed(t, trace, Agent("agent", scaling.Policy{Start: trace.Start, Max: trace.Max}))
		t.Logf("%v/s, for %d s of %d s %d times as long: at most %d instances, %.1f instance-hours, %.2f %% late, at worst %v", c.rate, c.slow, c.period,
			c.times, most(&r), r.InstanceHours, 100*r.LateShare(), r.Worst.Round(time.Second))
		if most(&r) > 9 || r.LateShare() > 0.002 {
			t.Error("more than 9 instances, or more than 0.2 % late")
		}
	}
}
