package scaling

import (
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// The sentence of the documentation.
func TestADecisionIsASentenceWithItsNumbers(t *testing.T) {
	h := History{{
		At: noon, Instances: 6, Ready: Known(6), Depth: Known(int64(4440)), Visible: Known(int64(4200)),
		Arrival: Known(28.0), Service: Known(35.0), Handling: Known(time.Second * 24 / 7), Slots: Known(20.0),
	}}
	t.Log(Policy{}.Decide(h).Why)
	h[0].Max()
}

func (s Sample) Max() {}
