package sharded_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue/sharded"
)

// S-04: Shards ≥ ceil(rate·(2+1/b)/limit).
func TestTheAdviceIsTheNumberOfShardsThatCarryTheLoad(t *testing.T) {
	for load, want := range map[sharded.Load]int{
		{}: 1,
		// The numbers of the requirement: one queue carries 246 messages/s in batches of 32, and 166 one by one.
		{Rate: 246, Limit: 500}: 1, {Rate: 247, Limit: 500}: 2,
		{Rate: 166, Batch: 1, Limit: 500}: 1, {Rate: 167, Batch: 1, Limit: 500}: 2,
		// And with the limit of today.
		{Rate: 984}: 1, {Rate: 985}: 2, {Rate: 10_000}: 11,
		{Rate: 960, Batch: 12}: 1, {Rate: 2000, Batch: 1}: 3, {Rate: 20_000, Batch: 1}: 30, // whole numbers but for rounding
	} {
		if got, err := sharded.Advise(load); err != nil || got != want {
			t.Errorf("%+v: got %d, %v; want %d", load, got, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		l := sharded.Load{
			Rate:  rapid.Float64Range(0, 1e6).Draw(t, "rate"),
			Batch: rapid.Float64Range(1, 32).Draw(t, "batch"),
			Limit: rapid.Float64Range(1, 1e5).Draw(t, "limit"),
		}
		n, err := sharded.Advise(l)
		if err != nil {
			t.Fatal(err)
		}
		needed := l.Rate * (2 + 1/l.Batch)
		if carried := float64(n) * l.Limit; carried < needed*(1-1e-9) {
			t.Errorf("%+v: %d shards serve %v requests of %v", l, n, carried, needed)
		}
		if fewer := float64(n-1) * l.Limit; n > 1 && fewer > needed*(1+1e-9) {
			t.Errorf("%+v: %d shards are more than needed", l, n)
		}
	})
}

func TestWhatIsNoLoadIsRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, l := range []sharded.Load{
		{Rate: nan}, {Rate: inf}, {Rate: -1}, {Rate: 1e300},
		{Batch: nan}, {Batch: inf}, {Batch: -1}, {Batch: 0.5}, {Batch: 33},
		{Limit: nan}, {Limit: inf}, {Limit: -1},
	} {
		if got, err := sharded.Advise(l); err == nil {
			t.Errorf("%+v: got %d, want an error", l, got)
		}
	}
	for _, o := range []sharded.MonitorOptions{{Batch: nan}, {Limit: -1}, {Fleet: -1}} {
		if _, err := sharded.NewMonitor(&o); err == nil {
			t.Errorf("%+v: want an error", o)
		}
	}
}

// S-03: 503 now and then is waited for; regularly it is the sign that shards are needed.
func TestRegularThrottlingIsToldFromABurst(t *testing.T) {
	minute := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	type step struct {
		sharded.Counts
		want int // 0 means no advice
	}
	// Each step is what a minute adds: 120,000 messages are 2,000 a second, which need three shards.
	busy := sharded.Counts{Requests: 250_000, Throttled: 2500, Messages: 120_000}
	calm := sharded.Counts{Requests: 250_000, Throttled: 2499, Messages: 120_000}
	busier := sharded.Counts{Requests: 300_000, Throttled: 30_000, Messages: 180_000}
	none := sharded.Counts{}
	for name, steps := range map[string][]step{
		"from the third minute on": {{none, 0}, {busy, 0}, {busy, 0}, {busy, 3}, {busy, 3}},
		"a minute without":         {{none, 0}, {busy, 0}, {busy, 0}, {calm, 0}, {busy, 0}, {busy, 0}, {busy, 3}},
		"an idle minute":           {{none, 0}, {busy, 0}, {busy, 0}, {none, 0}, {busy, 0}},
		"for the busiest of them":  {{none, 0}, {busy, 0}, {busier, 0}, {busy, 4}},
		"not for a peak before":    {{none, 0}, {busier, 0}, {calm, 0}, {busy, 0}, {busy, 0}, {busy, 3}},
		"a new meter, busier":      {{none, 0}, {busy, 0}, {busy, 0}, {sharded.Counts{Requests: -400_000, Throttled: 4000, Messages: -200_000}, 0}, {busy, 0}},
		"what was before":          {{busier, 0}, {calm, 0}, {calm, 0}, {calm, 0}, {calm, 0}},
		"a new meter":              {{none, 0}, {busy, 0}, {busy, 0}, {sharded.Counts{Requests: -400_000, Throttled: -4000, Messages: -200_000}, 0}, {busy, 0}, {busy, 0}, {busy, 3}},
	} {
		w, err := sharded.NewMonitor(nil)
		if err != nil {
			t.Fatal(err)
		}
		var sum sharded.Counts
		for i, s := range steps {
			sum.Requests += s.Requests
			sum.Throttled += s.Throttled
			sum.Messages += s.Messages
			advice, regular := w.Observe(minute.Add(time.Duration(i)*time.Minute), sum)
			if regular != (s.want > 0) || advice.Shards != s.want {
				t.Errorf("%s: after %d minutes %+v, %v; want %d shards", name, i, advice, regular, s.want)
			}
		}
	}
	w, err := sharded.NewMonitor(&sharded.MonitorOptions{Fleet: 10, Batch: 1, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var advice sharded.Advice
	var regular bool
	for i := range 4 {
		advice, regular = w.Observe(minute.Add(time.Duration(i)*time.Second), sharded.Counts{Requests: int64(100 * i), Throttled: int64(5 * i), Messages: int64(100 * i)})
	}
	if !regular || advice.Rate != 1000 || advice.Shards != 3 || advice.Throttled != 0.05 {
		t.Errorf("ten processes: %+v, %v", advice, regular)
	}
	if got := advice.String(); !strings.Contains(got, "5.0 %") || !strings.Contains(got, "1000 messages/s call for 3 shards") {
		t.Errorf("it reads %q", got)
	}
	// Two observations of one instant say nothing of a rate.
	if _, regular := w.Observe(minute.Add(3*time.Second), sharded.Counts{Requests: 1000, Throttled: 500, Messages: 1000}); regular {
		t.Error("advice from an interval of no length")
	}
}
