package shards

import (
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/scaling"
)

// The rates of shards add up; the handling time is weighted by what each ends. Unknown is not zero.
func TestTheRatesOfShardsAddUp(t *testing.T) {
	one := ShardState{State: listener.State{Load: listener.Load{Intake: scaling.Known(1.0), Service: scaling.Known(1.0), Handling: scaling.Known(time.Second)}}}
	two := ShardState{State: listener.State{Load: listener.Load{Intake: scaling.Known(2.5), Service: scaling.Known(3.0), Handling: scaling.Known(5 * time.Second)}}}
	var sum listener.State
	addRates(&sum, []ShardState{one, two})
	if sum.Intake != scaling.Known(3.5) || sum.Service != scaling.Known(4.0) || sum.Handling != scaling.Known(4*time.Second) || sum.Arrival.IsKnown() {
		t.Errorf("got %+v, want 3.5, 4, 4s and an unknown arrival", sum)
	}
	one.Service, two.Service = scaling.Known(0.0), scaling.Optional[float64]{}
	addRates(&sum, []ShardState{one, two})
	if sum.Service.IsKnown() || sum.Handling != scaling.Known(3*time.Second) {
		t.Errorf("got %+v, want an unknown service and the plain mean of 3s", sum)
	}
}
