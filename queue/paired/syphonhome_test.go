package paired

import (
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// A program hears of every message that came home and of its delay, to wake workers that do not poll. A
// panic there loses nothing.
func TestAProgramHearsWhatCameHome(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.put(t, 0, "now", nil)
		r.put(t, 1, "later", &queue.EnqueueOptions{Delay: 10 * time.Minute})
		var mu sync.Mutex
		heard := map[time.Duration]int{} // guarded by mu
		s := start(t, r.home, r.backlogs, &SyphonOptions{OnHome: func(primary queue.Name, delay time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if primary == r.home.Name() {
				heard[delay.Round(time.Minute)]++
			}
			panic("the hook is broken")
		}})
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if len(heard) != 2 || heard[0] != 1 || heard[10*time.Minute] != 1 {
			t.Errorf("heard of %v, want one now and one in 10m", heard)
		}
		if got := s.State(); got.Moved != 2 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %+v, want both at home", got)
		}
	})
}

// A hook that takes longer than a lease doubles nothing: the message was deleted before.
func TestASlowHookDoublesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRegions(t, 2)
		r.divert(t, 20)
		slow := func(queue.Name, time.Duration) { time.Sleep(15 * time.Second) }
		one := start(t, r.home, r.backlogs, &SyphonOptions{OnHome: slow, Lease: minLease, Seed: 1})
		two := start(t, r.home, r.backlogs, &SyphonOptions{OnHome: slow, Lease: minLease, Seed: 2})
		time.Sleep(10 * time.Minute)
		sameTexts(t, texts(t, r.home), jobs(20))
		if doubtful := one.State().Doubtful + two.State().Doubtful; doubtful != 0 || depths(t, r.backlogs...) != 0 {
			t.Errorf("got %d in doubt, want none", doubtful)
		}
	})
}
