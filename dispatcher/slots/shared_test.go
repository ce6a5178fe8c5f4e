package slots_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
)

// While all members want more than there is, the slots that each holds over time are in proportion to the
// weights, whatever the durations of their handlers (S-06).
func TestWeightsAreHonouredOverTime(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for name, takes := range map[string][]time.Duration{
		"equal handlers":    {time.Second, time.Second, time.Second},
		"slow heavy weight": {4 * time.Second, time.Second, 400 * time.Millisecond},
		"slow light weight": {400 * time.Millisecond, time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, &slots.SharedOptions{Slots: 60}, func(b *bundle) {
				weights := []int{3, 2, 1}
				var workers []*worker
				for i, takes := range takes {
					w := b.worker([]string{"one", "two", "three"}[i], &slots.MemberOptions{Weight: weights[i]}, takes)
					w.spread = true
					workers = append(workers, w.put(int(250*float64(40)/takes.Seconds())).start())
				}
				advance(20 * time.Second)
				held := averages(200*time.Second, workers...)
				all := 0.0
				for _, n := range held {
					all += n
				}
				t.Logf("held on average: %.2f, in all %.2f", held, all)
				for i, n := range held {
					if share := all * float64(weights[i]) / 6; n < share*0.97 || n > share*1.03 {
						t.Errorf("weight %d: got %.2f slots over time, want %.2f ± 3 %%", weights[i], n, share)
					}
				}
				for _, w := range workers {
					w.end()
				}
				if most := b.most.Load(); most > 60 {
					t.Errorf("got %d handlers at once, want at most 60", most)
				}
			})
		})
	}
}

// Among few slots a share is not a whole number of them. It is one over time.
func TestWeightsAreHonouredAmongFewSlots(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 4}, func(b *bundle) {
		five := b.worker("five", &slots.MemberOptions{Weight: 5}, time.Second)
		three := b.worker("three", &slots.MemberOptions{Weight: 3}, time.Second)
		for _, w := range []*worker{five, three} {
			w.spread = true
			w.put(1500).start()
		}
		advance(20 * time.Second)
		held := averages(200*time.Second, five, three)
		if ratio := held[0] / held[1]; ratio < 5.0/3*0.93 || ratio > 5.0/3*1.07 {
			t.Errorf("got %.2f slots over time, want a ratio of 5 to 3", held)
		}
		five.end()
		three.end()
	})
}
