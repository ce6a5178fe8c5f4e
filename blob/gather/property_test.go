package gather_test

import (
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/azuritetest"
	"github.com/millrace/millrace/internal/suitetest"
)

func TestMain(m *testing.M) {
	suitetest.OneProcessor()
	goleak.VerifyTestMain(stopping{m})
}

// stopping is the tests, and then the end of Azurite.
type stopping struct{ *testing.M }

// Run implements [goleak.TestingM].
func (s stopping) Run() int {
	defer azuritetest.Stop()
	return s.M.Run()
}

// Several processes gather one batch. Calls of the store fail, or take effect without an answer; processes die before and after any
// call; messages are in the queue twice and come again while their handlers run. Settles M-06.
func TestWhateverFailsThereIsOneEndAndNothingElseIsLeft(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := plan{
			Parts:     rapid.IntRange(1, 6).Draw(r, "parts"),
			Processes: rapid.IntRange(1, 3).Draw(r, "processes"),
			Twice:     rapid.SliceOfN(rapid.IntRange(0, 5), 0, 4).Draw(r, "twice"),
			TwoHops:   rapid.Bool().Draw(r, "two hops"),
			Remember:  rapid.IntRange(0, 1).Draw(r, "remember"),
			Seed:      rapid.Uint64().Draw(r, "seed"),
			Steps:     rapid.SampledFrom([]int{0, 50, 150, 400, 1000}).Draw(r, "steps"),
		}
		for range 20 {
			for _, fault := range play(t, p) {
				r.Errorf("seed %d: %s", p.Seed, fault)
			}
			p.Seed++
		}
	})
}

// A handler puts its part again after the end, late, because another one has handled its message since its lease was over.
// Then it dies. Nobody is left to sweep the part, until the next Sweep. Settles M-06.
func TestThePartOfAHandlerThatDiesLateIsLeftToTheNextSweep(t *testing.T) {
	for _, fault := range play(t, plan{Parts: 1, Processes: 1, Seed: 3857, Steps: 150}) {
		t.Error(fault)
	}
}
