package scaling

import (
	"math"
	"strings"
	"testing"
	"time"
)

// shift is the load of a shop: 20/s, and from nine to five 200/s, on the days that are open.
func shift(open func(day int) bool) func(second int) float64 {
	return func(second int) float64 {
		if hour := second / 3600 % 24; hour >= 9 && hour < 17 && open(second/86400) {
			return 200
		}
		return 20
	}
}

// a load that comes at the same time each day finds its instances started. A-10: what was never
// there a day ago does not keep instances.
func TestAForecastStartsInstancesBeforeTheDailyLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("plays days")
	}
	worst := map[bool]int64{}
	for _, forecast := range []bool{false, true} {
		p := &pool{
			policy: Policy{Max: 100, Forecast: forecast, Start: 2 * time.Minute}, slots: 10, handling: constant(1),
			start: 120, interval: 30, random: randomOf(1), arrival: shift(func(int) bool { return true }),
		}
		p.run(4 * 86400)
		nine := (3*86400 + 9*3600) / p.interval
		worst[forecast], _ = p.worst(nine - 10)
		told := false
		for _, d := range p.decided[nine-10 : nine+1] {
			told = told || d.Instances > d.From && strings.Contains(d.Why, "as at this time before (off by ")
		}
		if told != forecast {
			t.Errorf("forecast %v: instances that start early are explained by it: got %v", forecast, told)
		}
	}
	if worst[false] < 5000 || worst[true] > 500 {
		t.Errorf("most waiting on the fourth day: got %d, and with a forecast %d, want over 5,000, and at most 500", worst[false], worst[true])
	}
}

// a forecast that is worse than the latest figures is not used.
func TestAForecastThatIsWrongIsNotUsed(t *testing.T) {
	p := &pool{
		policy: Policy{Max: 100, Forecast: true}, slots: 10, handling: constant(1), start: 30, interval: 60, random: randomOf(1),
		arrival: shift(func(day int) bool { return day%2 == 0 }),
	}
	p.run(4 * 86400)
	// The second day is the first with a yesterday, so its morning begins without a judgment; the fourth has two.
	from := (3*86400 + 8*3600) / p.interval
	if _, most := p.worst(from); most > 5 {
		t.Errorf("a day that is closed: got up to %d instances, want at most 5", most)
	}
	for _, d := range p.decided[from:] {
		if strings.Contains(d.Why, "before (off by") {
			t.Fatalf("got %s, want no forecast", d.Why)
		}
	}
}

// The exact words, and the figures in them.
func TestAForecastIsSaidWithItsErrors(t *testing.T) {
	var h History
	for minute := -50 * 60; minute <= 0; minute++ {
		s := measured(6, 0, 10, 10)
		if hour := (minute + 10 + 72*60) % (24 * 60); hour < 60 { // from 10 minutes to twelve, for an hour
			s = measured(6, 0, 24, 24)
		}
		s.At = noon.Add(time.Duration(minute) * time.Minute)
		h.Add(s)
	}
	cut := h[:len(h)-11] // to eleven minutes to twelve
	got := Policy{Forecast: true, Start: 2 * time.Minute}.Decide(cut)
	const want = "6: stays, none waiting, 10/s in, 24/s in 2 min as at this time before (off by 0/s on average, the latest figures by 0.039/s), 10/s out; 6 wanted"
	if got.Why != want {
		t.Errorf("got\n%s\nwant\n%s", got.Why, want)
	}
	if d := (Policy{Start: 2 * time.Minute}).Decide(cut); d.Wanted >= got.Wanted {
		t.Errorf("without a forecast: got %d wanted, want fewer than %d", d.Wanted, got.Wanted)
	}
}

// The greater of a day and a week ago counts, as far as they are known.
func TestASeasonIsADayOrAWeek(t *testing.T) {
	at := func(age time.Duration, arrival Optional[float64]) Sample {
		return Sample{At: noon.Add(-age), Arrival: arrival}
	}
	unknown := Optional[float64]{}
	for _, c := range []struct {
		history History
		want    float64
		known   bool
	}{
		{nil, 0, false},
		{History{at(week, Known(3.0)), at(day, Known(2.0))}, 3, true},
		{History{at(week, Known(1.0)), at(day, Known(2.0))}, 2, true},
		{History{at(week, unknown), at(day, Known(2.0))}, 2, true},
		{History{at(week, Known(1.0)), at(day, unknown)}, 1, true},
		{History{at(week, Known(1.0)), at(day, Known(math.NaN()))}, 1, true},
		{History{at(day-2*time.Minute, Known(2.0))}, 2, true},
		{History{at(day-2*time.Minute-1, Known(2.0))}, 0, false},
		{History{at(day+1, Known(2.0))}, 0, false},
	} {
		if got := seasonal(c.history, noon); known(got) != c.known || c.known && got != c.want {
			t.Errorf("%v: got %v, want %v, known: %v", c.history, got, c.want, c.known)
		}
	}
}
