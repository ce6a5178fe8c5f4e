package agent

import (
	"testing"
	"time"

	"github.com/millrace/millrace/scaling"
)

// rates are taken by the monotonic clock, and not over a time that nobody knows.
func TestAnArrivalRate(t *testing.T) {
	type number = scaling.Optional[int64]
	type rate = scaling.Optional[float64]
	n, r := scaling.Known[int64], scaling.Known[float64]
	ten := passed{10 * time.Second, 10 * time.Second}
	for _, c := range []struct {
		name        string
		before, now number
		passed      passed
		service     rate
		want        rate
	}{
		{"more came than went", n(100), n(150), ten, r(2), r(7)},
		{"fewer came than went", n(100), n(90), ten, r(2), r(1)},
		{"reports are older than the depth", n(100), n(0), ten, r(2), r(0)},
		{"no report", n(100), n(150), ten, rate{}, rate{}},
		{"no depth before", number{}, n(150), ten, r(2), rate{}},
		{"no depth", n(100), number{}, ten, r(2), rate{}},
		{"too soon", n(100), n(150), passed{time.Second, time.Second}, r(2), rate{}},
		{"no time", n(100), n(150), passed{}, r(2), rate{}},
		{"the clock was corrected by half a second", n(100), n(150), passed{10 * time.Second, 10500 * time.Millisecond}, r(2), r(7)},
		{"the clock was set back by an hour", n(100), n(150), passed{10 * time.Second, 10*time.Second - time.Hour}, r(2), rate{}},
		{"the clock was set forward by an hour", n(100), n(150), passed{10 * time.Second, 10*time.Second + time.Hour}, r(2), rate{}},
		{"both clocks stand still", n(100), n(150), passed{10 * time.Millisecond, 10 * time.Millisecond}, r(2), rate{}},
	} {
		if got := arrival(c.before, c.now, c.passed, c.service, 5*time.Second); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// when the clock is set back, the history is set back with it, so that none of it is lost or seems to lie in the future.
// When it is set forward there is a gap.
func TestAHistoryWhoseClockIsSet(t *testing.T) {
	const step = 10 * time.Second
	for name, c := range map[string]struct {
		set       time.Duration
		samples   int
		lastWidth time.Duration
	}{
		"not":                 {0, 61, step},
		"back by half a step": {-step / 2, 61, step},
		"back by three hours": {-3 * time.Hour, 61, step},
		"a second back":       {-time.Second, 61, step - time.Second},
		"half an hour ahead":  {30 * time.Minute, 61, step + 30*time.Minute},
		"three hours ahead":   {3 * time.Hour, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(scaling.Policy{})
			at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
			for i := range 61 {
				p := passed{}
				if i > 0 {
					p = passed{step, step}
					if i == 60 {
						p.wall += c.set
					}
					at = at.Add(p.wall)
				}
				m.add(scaling.Sample{At: at, Instances: i}, p)
			}
			h := m.samples
			if len(h) != c.samples || h[len(h)-1].Instances != 60 || !h[len(h)-1].At.Equal(at) {
				t.Fatalf("got %d samples until %v, want %d until %v", len(h), h[len(h)-1].At, c.samples, at)
			}
			for i := 1; i < len(h); i++ {
				want := step
				if i == len(h)-1 {
					want = c.lastWidth
				}
				if width := h[i].At.Sub(h[i-1].At); width != want {
					t.Errorf("between samples %d and %d: got %v, want %v", i-1, i, width, want)
				}
			}
		})
	}
}
