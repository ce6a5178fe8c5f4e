package scaling

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// a history of 8 days with a sample every 10 s is bounded, and in order.
func TestAHistoryKeepsAnHourAndMinutesOf8Days(t *testing.T) {
	var h History
	const samples = 10 * 24 * 360
	most := 0
	for i := range samples {
		h.Add(Sample{At: noon.Add(time.Duration(i) * 10 * time.Second), Arrival: Known(float64(i % 6)), Service: Known(1.0)})
		most = max(most, len(h))
	}
	newest := h[len(h)-1].At
	if want := 360 + 1 + 8*24*60 - 60 + 1; most != want || len(h) != want {
		t.Errorf("samples: got %d, at most %d, want %d", len(h), most, want)
	}
	if c := cap(h); c > 2*len(h) {
		t.Errorf("capacity: got %d for %d samples, want less than double", c, len(h))
	}
	inLastHour := 0
	for i := range h[1:] {
		a, b := &h[i], &h[i+1]
		if !a.At.Before(b.At) {
			t.Fatalf("samples %d and %d are not in order: %v, %v", i, i+1, a.At, b.At)
		}
		if newest.Sub(b.At) <= time.Hour {
			inLastHour++
			continue
		}
		if sameMinute(a.At, b.At) {
			t.Fatalf("two samples of the minute of %v, more than an hour old", b.At)
		}
		if newest.Sub(b.At) < time.Hour+time.Minute {
			continue // the rest of its minute is not yet an hour old
		}
		if got := b.Arrival.Or(-1); got != 2.5 || b.Service.Or(-1) != 1 {
			t.Fatalf("sample of %v: got arrival %v and service %v, want the averages of a minute, 2.5 and 1", b.At, got, b.Service)
		}
	}
	if inLastHour != 361 {
		t.Errorf("samples of the last hour: got %d, want all 361", inLastHour)
	}
	if age := newest.Sub(h[0].At); age > 8*24*time.Hour || age < 8*24*time.Hour-time.Minute {
		t.Errorf("the oldest sample is %v old, want 8 days", age)
	}
}

// what was measured after a clock was set back comes from a time that is yet to come.
func TestAClockThatIsSetBackDropsTheFuture(t *testing.T) {
	var h History
	for _, minute := range []int{0, 1, 2, 60, 2, 3} {
		h.Add(Sample{At: noon.Add(time.Duration(minute) * time.Minute), Instances: minute})
	}
	var got []int
	for _, s := range h {
		got = append(got, s.Instances)
	}
	if want := []int{0, 1, 2, 3}; !slices.Equal(got, want) {
		t.Errorf("samples: got minutes %v, want %v", got, want)
	}
}

func TestAMergedSampleHasTheFiguresThatWereKnown(t *testing.T) {
	var h History
	h.Add(Sample{At: noon})
	h.Add(Sample{At: noon.Add(70 * time.Second), Arrival: Known(6.0), Service: Known(math.NaN()), Instances: 1}) // of a minute at most
	h.Add(Sample{At: noon.Add(90 * time.Second), Arrival: Known(2.0), Service: Known(3.0), Instances: 2})
	h.Add(Sample{At: noon.Add(2 * time.Hour)})
	if len(h) != 3 || h[1].Arrival.Or(0) != 5 || h[1].Service.Or(0) != 3 || h[1].Instances != 2 {
		t.Errorf("got %+v, want the two samples of 12:01 merged: (60 s × 6 + 20 s × 2) / 80 s in, 3/s out, 2 instances", h)
	}
}

// A sample does not depend on how its time was read.
func TestAHistoryHasNoMonotonicTimes(t *testing.T) {
	var h History
	now := time.Now()
	h.Add(Sample{At: now})
	if strings.Contains(h[0].At.String(), " m=") || !h[0].At.Equal(now) {
		t.Errorf("got %v for %v, want it without its monotonic part", h[0].At, now)
	}
}

// however the clock jumps, a history is in order, bounded, and ends with the newest sample.
func TestAHistoryIsInOrderHoweverTheClockJumps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h History
		at := noon
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			at = at.Add(time.Duration(rapid.OneOf(
				rapid.Int64Range(0, int64(time.Minute)),
				rapid.Int64Range(-int64(time.Hour), int64(time.Hour)),
				rapid.Int64Range(-int64(20*day), int64(20*day)),
			).Draw(t, "step")))
			h.Add(Sample{At: at})
			if !h[len(h)-1].At.Equal(at) {
				t.Fatalf("the last sample is of %v, want the one that was added, of %v", h[len(h)-1].At, at)
			}
			if !slices.IsSortedFunc(h, func(a, b Sample) int { return a.At.Compare(b.At) }) {
				t.Fatal("samples are not in order")
			}
			if age := at.Sub(h[0].At); age > 8*day {
				t.Fatalf("the oldest sample is %v old, want at most 8 days", age)
			}
		}
	})
}

// What was stored is what was measured.
func TestASampleSurvivesItsJSONForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := History{arbitrary(t, "sample")}
		h[0].At = noon.Add(time.Duration(rapid.Int64Range(-int64(week), int64(week)).Draw(t, "at")))
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var got History
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		// What JSON cannot express is unknown afterwards, and was treated so before.
		for _, o := range []*Optional[float64]{&h[0].Arrival, &h[0].Service, &h[0].Slots, &h[0].CPU, &h[0].Memory} {
			if v := o.Or(0); math.IsNaN(v) || math.IsInf(v, 0) {
				*o = Optional[float64]{}
			}
		}
		if !reflect.DeepEqual(got, h) {
			t.Fatalf("got %+v from %s, want %+v", got, text, h)
		}
	})
}

func TestTheJSONFormsOfSamplesAndLoads(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{Sample{At: noon, Instances: 2}, `{"at":"2026-11-23T12:00:00Z","instances":2}`},
		{
			Sample{At: noon, Instances: 2, Ready: Known(0), HeadAge: Known(1500 * time.Millisecond), Arrival: Known(0.5)},
			`{"at":"2026-11-23T12:00:00Z","instances":2,"ready":0,"head_age":"1.5s","arrival":0.5}`,
		},
		{
			Load{Depth: 7, Handling: Known(time.Second), Intake: Known(math.Inf(1))},
			`{"depth":7,"loops":0,"running":0,"settling":0,"slots":0,"batch_size":0,"arrival":null,"intake":null,"service":null,"handling":"1s"}`,
		},
		{Decision{At: noon, From: 1, Instances: 2, Wanted: 3, Why: "because"}, `{"at":"2026-11-23T12:00:00Z","from":1,"instances":2,"wanted":3,"why":"because"}`},
	} {
		if got, err := json.Marshal(c.value); err != nil || string(got) != c.want {
			t.Errorf("got %s, %v, want %s", got, err, c.want)
		}
	}
}

func TestAnOptionalRefusesWhatItsFigureRefuses(t *testing.T) {
	for _, text := range []string{`"soon"`, `5`, `{}`, `"1"`} {
		o := Known(time.Second)
		if err := json.Unmarshal([]byte(text), &o); err == nil || o.IsKnown() {
			t.Errorf("a duration of %s: got %v, %v, want an error and an unknown figure", text, o, err)
		}
	}
	n := Known(3)
	if err := json.Unmarshal([]byte(`"3"`), &n); err == nil || n.IsKnown() {
		t.Errorf("a number in quotes: got %v, %v, want an error and an unknown figure", n, err)
	}
	if v, known := n.Get(); v != 0 || known || n.Or(7) != 7 {
		t.Errorf("an unknown figure: got %v, %v, and %v instead, want zero, false, and 7", v, known, n.Or(7))
	}
}

// arbitrary is a sample with figures that are known or not, likely or absurd.
func arbitrary(t *rapid.T, name string) Sample {
	draw := func(what string) bool { return rapid.IntRange(0, 3).Draw(t, name+" "+what+" is known") > 0 }
	floats := rapid.OneOf(rapid.Float64Range(0, 1000), rapid.Float64(), rapid.SampledFrom([]float64{0, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1e-300, 1e300}))
	counts := rapid.OneOf(rapid.Int64Range(0, 10000), rapid.Int64(), rapid.SampledFrom([]int64{0, -1, math.MaxInt64, math.MinInt64}))
	var s Sample
	s.Instances = int(rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64()).Draw(t, name+" instances"))
	if draw("ready") {
		s.Ready = Known(int(rapid.OneOf(rapid.Int64Range(0, 30), rapid.Int64()).Draw(t, name+" ready")))
	}
	if draw("depth") {
		s.Depth = Known(counts.Draw(t, name+" depth"))
	}
	if draw("visible") {
		s.Visible = Known(counts.Draw(t, name+" visible"))
	}
	if draw("in work") {
		s.InWork = Known(counts.Draw(t, name+" in work"))
	}
	if draw("delayed") {
		s.Delayed = Known(counts.Draw(t, name+" delayed"))
	}
	if draw("head age") {
		s.HeadAge = Known(time.Duration(counts.Draw(t, name+" head age")))
	}
	if draw("arrival") {
		s.Arrival = Known(floats.Draw(t, name+" arrival"))
	}
	if draw("service") {
		s.Service = Known(floats.Draw(t, name+" service"))
	}
	if draw("handling") {
		s.Handling = Known(time.Duration(counts.Draw(t, name+" handling")) * rapid.SampledFrom([]time.Duration{1, time.Millisecond}).Draw(t, name+" unit"))
	}
	if draw("slots") {
		s.Slots = Known(floats.Draw(t, name+" slots"))
	}
	if draw("running") {
		s.Running = Known(int(counts.Draw(t, name+" running")))
	}
	if draw("CPU and memory") {
		shares := rapid.OneOf(rapid.Float64Range(0, 1), floats)
		s.CPU, s.Memory = Known(shares.Draw(t, name+" CPU")), Known(shares.Draw(t, name+" memory"))
	}
	return s
}
