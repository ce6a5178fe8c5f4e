package scaling

import (
	"testing"
	"time"
)

// eightDays is a history of 8 days, measured every 10 s, of a pool that is too large for its load.
func eightDays(change func(*Sample)) (h History) {
	for i := range 8 * 24 * 360 {
		s := measured(12, 0, float64(20+i%5), float64(20+i%7))
		s.At = noon.Add(time.Duration(i) * 10 * time.Second)
		change(&s)
		h.Add(s)
	}
	return h
}

// BenchmarkDecide measures decisions that look at all they may look at: those that would remove
// instances, and whether a forecast is good.
func BenchmarkDecide(b *testing.B) {
	for _, c := range []struct {
		name   string
		policy Policy
		change func(*Sample)
	}{
		{"growth", Policy{}, func(s *Sample) { s.Visible = Known(int64(5000)) }},
		{"removal", Policy{}, func(*Sample) {}},
		{"depth only", Policy{Slots: 4, Handling: 1}, func(s *Sample) { *s = Sample{At: s.At, Instances: 12, Depth: s.Depth} }},
		{"forecast", Policy{Forecast: true, Start: 1}, func(s *Sample) {
			if s.At.Hour() == 11 && s.At.Minute() >= 59 || s.At.Hour() == 12 {
				s.Arrival = Known(30.0)
			}
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			h := eightDays(c.change)
			b.ReportAllocs()
			for b.Loop() {
				c.policy.Decide(h)
			}
		})
	}
}

func BenchmarkHistoryAdd(b *testing.B) {
	h := eightDays(func(*Sample) {})
	s := h[len(h)-1]
	b.ReportAllocs()
	for b.Loop() {
		s.At = s.At.Add(10 * time.Second)
		h.Add(s)
	}
}

// A decision allocates its sentence, and nothing else.
func TestADecisionAllocatesItsSentenceOnly(t *testing.T) {
	h := every10s(repeat(70, measured(12, 0, 28, 28))...)
	if n := testing.AllocsPerRun(100, func() { Policy{Forecast: true}.Decide(h) }); n > 1 {
		t.Errorf("got %v allocations, want 1", n)
	}
}
