package scaling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/scaling"
)

// lasting returns a history of so many minutes in which nothing changed: jobs of a second, 64 slots.
func lasting(minutes, instances int, arrival float64, waiting int64) scaling.History {
	var h scaling.History
	begin := time.Date(2026, time.March, 2, 9, 0, 0, 0, time.UTC)
	for i := range 6*minutes + 1 {
		h = append(h, scaling.Sample{
			At: begin.Add(time.Duration(i) * 10 * time.Second), Instances: instances, Ready: scaling.Known(instances),
			Depth: scaling.Known(waiting + 400), Visible: scaling.Known(waiting), InWork: scaling.Known[int64](400), Running: scaling.Known(400),
			Arrival: scaling.Known(arrival), Service: scaling.Known(min(64*float64(instances), arrival)),
			Handling: scaling.Known(time.Second), Slots: scaling.Known(64.0),
		})
	}
	return h
}

// With 448/s in, which is what seven instances handle, and a wait of a minute, 26,880 may wait. What is missing from that is filled within five minutes,
// what exceeds it is drained within the target of a minute.
func TestWhatMayWaitCallsForNoInstances(t *testing.T) {
	p := scaling.Policy{Wait: time.Minute, Utilization: 1, DownAfter: time.Minute}
	for _, c := range []struct {
		waiting                   int64
		present, wanted, withNone int
	}{
		{26_880, 7, 7, 14},  // 448 / 64; without a wait (448 + 26,880 / 60) / 64
		{0, 7, 6, 7},        // (448 − 26,880 / 300) / 64 = 5.6
		{53_760, 7, 14, 21}, // (448 + 26,880 / 60) / 64; without a wait (448 + 53,760 / 60) / 64
	} {
		h := lasting(1, c.present, 448, c.waiting)
		if d := p.Decide(h); d.Wanted != c.wanted {
			t.Errorf("%d waiting: got %+v, want %d wanted", c.waiting, d, c.wanted)
		}
		if why := p.Decide(h).Why; !strings.Contains(why, " waiting, 26,880 may, 448/s in") {
			t.Errorf("%d waiting: got %q, want how many may", c.waiting, why)
		}
		none := p
		none.Wait = 0
		if d := none.Decide(h); d.Wanted != c.withNone {
			t.Errorf("%d waiting that may not wait: got %+v, want %d wanted", c.waiting, d, c.withNone)
		}
	}
	if d := p.Decide(lasting(5, 8, 448, 0)); d.Instances != 7 {
		t.Errorf("nothing waits: got %+v, want one instance less", d)
	}
	if err := (scaling.Policy{Wait: -1}).Check(); err == nil || !strings.Contains(err.Error(), "Wait") {
		t.Errorf("a negative wait: got %v, want an error that names it", err)
	}
	negative := scaling.Policy{Wait: -time.Hour, Utilization: 1}
	if got, want := negative.Decide(lasting(1, 7, 400, 24_000)), (scaling.Policy{Utilization: 1}).Decide(lasting(1, 7, 400, 24_000)); got != want {
		t.Errorf("a negative wait: got %+v, want %+v as without one", got, want)
	}
}

// While a backlog is drained, fewer and fewer are wanted, but none is removed: the last messages would wait ever longer.
func TestNoneIsRemovedWhileABacklogIsDrained(t *testing.T) {
	p := scaling.Policy{DownAfter: time.Minute, Target: 10 * time.Minute}
	d := p.Decide(lasting(30, 20, 0, 64*20*11)) // for eleven seconds
	if d.Instances != 20 || d.Wanted >= 20 || !strings.Contains(d.Why, "none is removed until they are drained") {
		t.Errorf("a backlog of eleven seconds: got %+v, want 20 instances and why", d)
	}
	if d := p.Decide(lasting(30, 20, 0, 64*20*9)); d.Instances >= 20 {
		t.Errorf("a backlog of nine seconds: got %+v, want fewer", d)
	}
}
