package scaling

import (
	"math"
	"testing"
	"time"
)

// A policy with its defaults decides as the policy does; what nobody knows stays unknown.
func TestDefaultsOfAPolicy(t *testing.T) {
	full := Policy{Min: 1, Max: 20, Target: time.Minute, Utilization: 0.8, Start: 30 * time.Second, DownAfter: 5 * time.Minute}
	for _, c := range []struct{ policy, want Policy }{
		{Policy{}, full},
		{Policy{Min: -1, Max: -1, Target: -1, Wait: -1, Utilization: math.NaN(), Spare: -1, Start: -1, DownAfter: -1, Slots: -1, Handling: -1}, full},
		{Policy{Min: 30}, Policy{Min: 30, Max: 30, Target: time.Minute, Utilization: 0.8, Start: 30 * time.Second, DownAfter: 5 * time.Minute}},
		{Policy{ToZero: true, Max: 3}, Policy{ToZero: true, Max: 3, Target: time.Minute, Utilization: 0.8, Start: 30 * time.Second, DownAfter: 5 * time.Minute}},
	} {
		got := c.policy.WithDefaults()
		if got != c.want {
			t.Errorf("%+v: got %+v, want %+v", c.policy, got, c.want)
		}
		if again := got.WithDefaults(); again != got {
			t.Errorf("%+v twice: got %+v", got, again)
		}
		if got, want := got.rules(), c.policy.rules(); got != want {
			t.Errorf("%+v: got rules %+v, want %+v", c.policy, got, want)
		}
	}
}
