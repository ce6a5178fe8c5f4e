package replay

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/scaling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// asks returns a rule that asks for these numbers of instances in turn, one each interval; the last one for ever.
func asks(interval time.Duration, numbers ...int) Rule {
	return Rule{Name: "asks", Interval: interval, Begin: func(*Trace) func(scaling.History) scaling.Decision {
		return func(h scaling.History) scaling.Decision {
			return scaling.Decision{Instances: numbers[min(len(h), len(numbers))-1], Why: "asked"}
		}
	}}
}

// seconds of a trace: so many messages in each.
func perSecond(arrivals ...float64) Trace {
	return Trace{Name: "test", Step: time.Second, Arrivals: arrivals, Handling: time.Second, Slots: 10, SLA: time.Minute, Initial: 1, Max: 20}
}

// constant returns n seconds with this rate, and then quiet ones.
func constant(rate float64, n, quiet int) []float64 {
	return append(slices.Repeat([]float64{rate}, n), make([]float64, quiet)...)
}

func replayed(t *testing.T, trace Trace, r Rule) Result {
	t.Helper()
	result, err := Run(trace, r)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6*max(math.Abs(want), 1) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// A burst computed by hand: 600 messages come in the first second, ten slots serve ten a second. Message x came at x/600, begins at x/10 and ends a
// second later. It is late after 31 s if x (1/10 − 1/600) > 30, which is x > 305.08.
func TestABurstIsAsComputedByHand(t *testing.T) {
	trace := perSecond(constant(600, 1, 99)...)
	trace.SLA = 31 * time.Second
	r := replayed(t, trace, Fixed(1))
	near(t, "late", r.Late, 600-30/(1.0/10-1.0/600))
	near(t, "worst", r.Worst.Seconds(), 60)
	near(t, "done", r.Done, 600)
	near(t, "instance-hours", r.InstanceHours, 100.0/3600)
	near(t, "share", r.LateShare(), r.Late/600)
}

// The fluid limit of D/D/c and M/D/c: with λ below the capacity µ nobody waits; above it the message that comes at t waits (λ/µ − 1) t.
func TestTheFluidLimit(t *testing.T) {
	for _, handling := range []time.Duration{100 * time.Millisecond, 500 * time.Millisecond, time.Second} {
		capacity := 2 * 10 / handling.Seconds() // of two instances
		trace := perSecond(constant(0.99*capacity, 1000, 10)...)
		trace.Handling, trace.SLA, trace.Initial = handling, handling, 2
		r := replayed(t, trace, Fixed(2))
		near(t, "late below the capacity", r.Late, 0)
		near(t, "worst below the capacity", r.Worst.Seconds(), handling.Seconds())

		trace.Arrivals, trace.SLA = constant(1.25*capacity, 1000, 500), 101*time.Second
		r = replayed(t, trace, Fixed(2))
		onTime := (101 - handling.Seconds()) / (1.25 - 1) // until then
		near(t, "late above the capacity", r.Late, 1.25*capacity*(1000-onTime))
		near(t, "worst above the capacity", r.Worst.Seconds(), 250+handling.Seconds())
		near(t, "left", r.Left, 0)
	}
}

// Long handlers: as many messages as slots are free begin at once, and the next ones when these return.
func TestLongHandlersBeginAtOnce(t *testing.T) {
	trace := perSecond(constant(20, 1, 200)...)
	trace.Handling, trace.SLA = 40*time.Second, 42*time.Second
	r := replayed(t, trace, Fixed(1))
	near(t, "late of two rounds of ten", r.Late, 10)
	if r.Worst < 79*time.Second || r.Worst > 82*time.Second {
		t.Errorf("worst: got %v, want about 80 s", r.Worst)
	}
}

// What waits when the trace ends has as much time as all others; what has not begun then is late. It costs nothing more.
func TestJobsEndAfterTheTrace(t *testing.T) {
	trace := perSecond(100, 0, 0)
	trace.SLA = 4 * time.Second
	r := replayed(t, trace, Fixed(1))
	near(t, "late", r.Late, 100-3/(1.0/10-1.0/100)) // message x came at x/100 and ends at x/10 + 1
	near(t, "left", r.Left, 40)                     // in seven seconds sixty have ended
	near(t, "done", r.Done, 60)
	near(t, "instance-hours", r.InstanceHours, 3.0/3600)
	near(t, "worst", r.Worst.Seconds(), 7.3)
	if r.Timeline[len(r.Timeline)-1].At >= 3*time.Second {
		t.Errorf("got the last point at %v, want a timeline that ends with the trace", r.Timeline[len(r.Timeline)-1].At)
	}
	trace.SLA = 20 * time.Second
	if r = replayed(t, trace, Fixed(1)); r.Late != 0 || r.Left > 1e-6 {
		t.Errorf("with time enough: got %v late and %v left, want none", r.Late, r.Left)
	}
}

// An instance works after Start, and is paid for from being asked for. What is asked for above Max is not given.
func TestInstancesStartAfterATime(t *testing.T) {
	trace := perSecond(constant(10, 1, 99)...)
	trace.Initial, trace.Start, trace.Max = 0, 30*time.Second, 4
	r := replayed(t, trace, asks(10*time.Second, 0, 7, 7))
	near(t, "instance-hours", r.InstanceHours, 4*90.0/3600)
	if r.Worst < 40*time.Second || r.Worst > 42*time.Second {
		t.Errorf("worst: got %v, want 41 s: asked for at 10 s, ready at 40 s", r.Worst)
	}
	trace.Vary = 0.5
	ready := 0
	for _, p := range replayed(t, trace, asks(10*time.Second, 4)).Timeline {
		if p.At < 15*time.Second && p.Ready > 0 || p.At > 45*time.Second && p.Ready < 4 {
			t.Errorf("after %v: got %d ready, want them between 15 s and 45 s", p.At, p.Ready)
		}
		if p.Ready > 0 && p.Ready < 4 {
			ready++
		}
	}
	if ready == 0 {
		t.Error("all became ready at once, want a time for each")
	}
}

// Surplus instances that start go first, at once; ready ones finish their handlers and are paid until then. Their slots are not
// given to others, and those of the others are not taken.
func TestSurplusInstancesFinishTheirHandlers(t *testing.T) {
	trace := perSecond(constant(20, 1, 99)...)
	trace.Handling, trace.Initial, trace.Start, trace.SLA = 40*time.Second, 2, time.Hour, 100*time.Second
	r := replayed(t, trace, asks(10*time.Second, 5, 2, 1))
	near(t, "instance-hours", r.InstanceHours, (5*10+2*50+1*40)/3600.0)
	near(t, "done", r.Done, 20)
	if r.Changes != 3 || r.Reversals != 1 {
		t.Errorf("got %d changes and %d reversals, want 3 and 1", r.Changes, r.Reversals)
	}

	// Twenty handlers run, one of two instances goes after ten seconds: twenty more messages are handled ten at a time.
	trace.Arrivals = append([]float64{20, 0, 20}, make([]float64, 197)...)
	r = replayed(t, trace, asks(10*time.Second, 2, 1))
	if r.Worst < 117*time.Second || r.Worst > 121*time.Second {
		t.Errorf("worst: got %v, want about 118 s: begun at 80 s", r.Worst)
	}
}

// Poison is handled five times, with 1, 16, 81 and 256 seconds between, and then it is in the poison queue.
func TestPoisonIsHandledFiveTimes(t *testing.T) {
	const last = 5 + 1 + 16 + 81 + 256 // five handlers of a second, and the waits
	trace := perSecond(constant(3, 1, last+20)...)
	trace.Poison = append([]float64{3}, make([]float64, last+20)...)
	r := replayed(t, trace, Fixed(1))
	near(t, "poisoned", r.Poisoned, 3)
	near(t, "jobs", r.Jobs, 3)
	near(t, "late", r.Late, 0)
	idle := (float64(len(trace.Arrivals))*10 - 15) / 10 // polls: of ten slots fifteen seconds are busy
	near(t, "requests", r.Requests, 15*1.091+3+idle)

	trace.Arrivals, trace.Poison = trace.Arrivals[:last-20], trace.Poison[:last-20]
	r = replayed(t, trace, Fixed(1))
	near(t, "poisoned early", r.Poisoned, 3) // after the end
	trace.SLA = time.Second
	r = replayed(t, trace, Fixed(1))
	near(t, "poisoned with no time", r.Poisoned, 0)
	near(t, "left early", r.Left, 3)
}

// Poison takes slots from the others.
func TestPoisonTakesSlots(t *testing.T) {
	trace := perSecond(constant(6, 1000, 10)...)
	trace.SLA = time.Second
	near(t, "late without poison", replayed(t, trace, Fixed(1)).Late, 0)
	trace.Poison = constant(2, 1000, 10)
	if r := replayed(t, trace, Fixed(1)); r.LateShare() < 0.5 {
		t.Errorf("late with poison: got a share of %v, want most: 14 handlers begin a second in 10 slots", r.LateShare())
	}
}

// traces draws traces with everything that they may have.
func traces(t *rapid.T) Trace {
	n := rapid.IntRange(1, 60).Draw(t, "steps")
	trace := Trace{
		Name: "drawn", Step: time.Duration(rapid.IntRange(1, 20).Draw(t, "step")) * time.Second,
		Handling: time.Duration(rapid.Int64Range(1, int64(30*time.Second)).Draw(t, "handling")),
		Slots:    rapid.IntRange(1, 70).Draw(t, "slots"), Start: time.Duration(rapid.IntRange(0, 90).Draw(t, "start")) * time.Second,
		Vary: rapid.Float64Range(0, 1).Draw(t, "vary"), SLA: time.Duration(rapid.IntRange(1, 300).Draw(t, "sla")) * time.Second,
		Max: 12, Initial: rapid.IntRange(0, 12).Draw(t, "initial"),
		Noise: rapid.Float64Range(0, 1).Draw(t, "noise"), Missing: rapid.Float64Range(0, 1).Draw(t, "missing"), Seed: rapid.Uint64().Draw(t, "seed"),
	}
	poison, handlings := rapid.Bool().Draw(t, "poison"), rapid.Bool().Draw(t, "handlings")
	for range n {
		a := rapid.SampledFrom([]float64{0, 0, 1, 7.5, 100, 3000}).Draw(t, "arrivals")
		trace.Arrivals = append(trace.Arrivals, a)
		if poison {
			trace.Poison = append(trace.Poison, a*rapid.Float64Range(0, 1).Draw(t, "share"))
		}
		if handlings {
			trace.Handlings = append(trace.Handlings, time.Duration(rapid.Int64Range(1, int64(20*time.Second)).Draw(t, "handling of a step")))
		}
	}
	return trace
}

// Whatever comes is handled, waits, or is poison; nothing is lost, and nothing is handled twice. The same arguments give the same result.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := traces(t)
		rule := asks(time.Duration(rapid.IntRange(1, 30).Draw(t, "interval"))*time.Second, rapid.SliceOfN(rapid.IntRange(-3, 15), 1, 40).Draw(t, "asks")...)
		r, err := Run(trace, rule)
		if err != nil {
			t.Fatal(err)
		}
		exact := 1e-9*r.Jobs + 1e-9
		if lost := r.Jobs - r.Done - r.Poisoned - r.Left; math.Abs(lost) > exact {
			t.Errorf("got %v done, %v poisoned and %v left of %v, which is off by %v", r.Done, r.Poisoned, r.Left, r.Jobs, lost)
		}
		if r.Late < 0 || r.Late > r.Jobs-r.Poison+exact || r.Done > r.Jobs-r.Poison+exact || r.Poisoned > r.Poison+exact {
			t.Errorf("got %v late, %v done and %v poisoned of %v jobs and %v poison", r.Late, r.Done, r.Poisoned, r.Jobs, r.Poison)
		}
		if r.Late == 0 && r.Worst > trace.SLA+time.Millisecond {
			t.Errorf("got none late and a worst of %v, beyond the SLA of %v", r.Worst, trace.SLA)
		}
		if r.InstanceHours < 0 || r.InstanceHours > float64(2*trace.Max)*(trace.Length().Hours()) || r.Reversals > r.Changes {
			t.Errorf("got %v instance-hours, %d changes and %d reversals", r.InstanceHours, r.Changes, r.Reversals)
		}
		again, err := Run(trace, rule)
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Errorf("a second replay: got %+v, %v, want the same as %+v", again, err, r)
		}
	})
}

// No more handlers run on the instances that take messages than they have slots.
func TestNoSlotRunsTwoHandlers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := traces(t)
		trace.Handlings = nil
		trace.Handling = max(trace.Handling, time.Second) // shorter ones leave their slots within the second
		s := newSimulation(&trace, asks(7*time.Second, rapid.SliceOfN(rapid.IntRange(0, 12), 1, 20).Draw(t, "asks")...))
		for now := range s.length {
			s.second(now)
			if slots := float64(s.fleet.ready * trace.Slots); s.work.active > slots+1e-6 {
				t.Fatalf("second %d: got %v handlers in %v slots", now, s.work.active, slots)
			}
			if d := sum(s.work.onActive) - s.work.active; math.Abs(d) > 1e-6 {
				t.Fatalf("second %d: the sum of active handlers is off by %v", now, d)
			}
			if left := s.line.left(); math.Abs(left.total()-s.line.waiting) > 1e-6*max(s.line.waiting, 1) {
				t.Fatalf("second %d: %v wait, counted as %v", now, left.total(), s.line.waiting)
			}
		}
	})
}

func sum(values []float64) (n float64) {
	for _, v := range values {
		n += v
	}
	return n
}

// More instances at all times are never later.
func TestMoreInstancesAreNeverLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := traces(t)
		trace.Vary, trace.Initial, trace.Handlings = 0, 0, nil
		fewer, err1 := Run(trace, Fixed(2))
		more, err2 := Run(trace, Fixed(3))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		if more.Late > fewer.Late+1e-6*fewer.Jobs+float64(trace.Slots) {
			t.Errorf("late: got %v with three instances and %v with two", more.Late, fewer.Late)
		}
	})
}

// The accounts of a trace carry what comes, or it is refused; and a backlog is drained no faster than they carry.
func TestAccountsAreALimit(t *testing.T) {
	trace := perSecond(constant(9_000, 5, 0)...)
	trace.Slots, trace.Max, trace.Initial = 1000, 100, 100
	if err := trace.Check(); err != nil {
		t.Errorf("9,000 messages a second: got %v, want no error", err)
	}
	trace.Arrivals[3] = 30_000
	_, err := Run(trace, Fixed(1))
	if err == nil || !strings.Contains(err.Error(), "after 3s") || !strings.Contains(err.Error(), "Name at least 4 accounts") {
		t.Errorf("30,000 messages a second: got %v, want an error that names the time and the accounts", err)
	}
	if want := "one storage account carries 20000"; !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	trace.Accounts = []string{"a", "b"}
	if err := trace.Check(); err == nil || !strings.Contains(err.Error(), "2 storage accounts carry 40000") {
		t.Errorf("with two accounts: got %v, want an error", err)
	}
	trace.Accounts = []string{"a", "b", "c", "d"}
	if err := trace.Check(); err != nil {
		t.Errorf("with four accounts: got %v, want no error", err)
	}

	trace = perSecond(constant(9_000, 100, 100)...)
	trace.Slots, trace.Initial, trace.Start, trace.Max = 1000, 0, 100*time.Second, 100
	r := replayed(t, trace, Fixed(100))
	if carried := 100 * accountRequests / requestsPerDelivery; r.Left > 0.001 || r.Worst < time.Duration(900_000/carried*1.09*float64(100*time.Second))-101*time.Second {
		t.Errorf("got %v left and a worst of %v", r.Left, r.Worst)
	}
	served := 0.0
	for _, p := range r.Timeline {
		served = max(served, p.Service)
	}
	if served > accountRequests/requestsPerDelivery+1 {
		t.Errorf("got %v served in a second, more than an account carries", served)
	}
	if q := trace.queues(); q != 5 {
		t.Errorf("queues for 9,000 messages a second: got %v, want 5", q)
	}
}

// Requests: idle instances poll, rules read each queue, instances report.
func TestRequestsAreCounted(t *testing.T) {
	trace := perSecond(make([]float64, 100)...)
	trace.Initial = 3
	r := replayed(t, trace, Fixed(3))
	near(t, "idle polls", r.Requests, 300)
	rule := Fixed(3)
	rule.Requests, rule.Interval, rule.Beacon = 2, 10*time.Second, 20*time.Second
	r = replayed(t, trace, rule)
	near(t, "with readings and beacons", r.Requests, 300+10*2+300.0/20+10)
}

// What is wrong with a trace is named, all of it at once.
func TestWrongTracesAreRefused(t *testing.T) {
	good := perSecond(1, 2)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Trace){
		"step is":        func(t *Trace) { t.Step = 1500 * time.Millisecond },
		"no arrivals":    func(t *Trace) { t.Arrivals = nil },
		"longer than":    func(t *Trace) { t.Step = 1000 * time.Hour },
		"of poison":      func(t *Trace) { t.Poison = []float64{0} },
		"are poison":     func(t *Trace) { t.Poison = []float64{0, 3} },
		"handling times": func(t *Trace) { t.Handlings = []time.Duration{1} },
		"step 2: handl":  func(t *Trace) { t.Handlings = []time.Duration{1, 0} },
		"handling is":    func(t *Trace) { t.Handling = 0 },
		"slots are":      func(t *Trace) { t.Slots = 0 },
		"start is":       func(t *Trace) { t.Start = -1 },
		"sla is":         func(t *Trace) { t.SLA = 0 },
		"max is":         func(t *Trace) { t.Max = 0 },
		"initial is":     func(t *Trace) { t.Initial = 21 },
		"vary is":        func(t *Trace) { t.Vary = math.NaN() },
		"noise is":       func(t *Trace) { t.Noise = 2 },
		"missing is":     func(t *Trace) { t.Missing = -1 },
		"step 1: NaN":    func(t *Trace) { t.Arrivals = []float64{math.NaN(), 1} },
		"step 2: -1":     func(t *Trace) { t.Arrivals = []float64{1, -1} },
	} {
		trace := good
		change(&trace)
		if _, err := Run(trace, Fixed(1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if err := (&Trace{}).Check(); err == nil || strings.Count(err.Error(), "\n") < 4 {
		t.Errorf("the zero value: got %v, want all that is missing", err)
	}
}

// A line that empties within a second: who comes after that does not wait. Of 25 in the first second twenty begin, and all wait; the five others are gone
// in the middle of the second one, and so half of the ten that come in it wait.
func TestTheLineEmptiesWithinASecond(t *testing.T) {
	trace := perSecond(25, 10, 0)
	trace.Slots, trace.Handling, trace.SLA = 2, 100*time.Millisecond, 100*time.Millisecond
	r := replayed(t, trace, Fixed(1))
	near(t, "late", r.Late, 25+5)
	near(t, "worst", r.Worst.Seconds(), 0.35) // the last of the first second begins a quarter of a second after it
}

// What a rule does after the trace is no change of its.
func TestChangesEndWithTheTrace(t *testing.T) {
	trace := perSecond(constant(60, 10, 0)...)
	if r := replayed(t, trace, asks(5*time.Second, 2, 3, 1, 2, 1)); r.Changes != 2 || r.Reversals != 0 {
		t.Errorf("got %d changes and %d reversals, want the 2 within ten seconds", r.Changes, r.Reversals)
	}
}
