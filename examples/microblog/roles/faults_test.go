package roles

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/microblog/channels"
	"github.com/millrace/millrace/queue/faultqueue"
)

var (
	worlds    = flag.Int("worlds", 20, "worlds of faults")
	firstSeed = flag.Uint64("seed", 1, "of the first world of faults")
)

// Two workers behind a network that loses requests and answers, delays them, and delivers some late, with people who
// read, write, delete and create all the time: no reader sees a post of a channel that was marked, nothing of a dead channel
// is left in the end, nothing of the living one is lost, and no message becomes poison.
//
//	go test ./examples/microblog/roles -run TestFaults -worlds 1000 -seed 1
//
// T-12, T-15.
func TestFaultsLeaveWhatTheyShould(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	seen := map[string]int{}
	for seed := range uint64(*worlds) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.suffer(*firstSeed+seed, seen)
			w.mustBeRight("seed %d", *firstSeed+seed)
		})
	}
	for _, fault := range []string{"lost request", "lost answer", "late", "slow"} {
		for _, op := range []string{"get", "query", "insert", "update", "delete", "apply"} {
			if seen[fault+" "+op] == 0 && *worlds >= 20 {
				t.Errorf("%s %s: got none in %d worlds, want some", fault, op, *worlds)
			}
		}
	}
	t.Log(slices.Sorted(maps.Keys(seen)), seen)
}

// suffer lets people and workers work behind bad networks, and then the workers alone behind good ones.
func (w *world) suffer(seed uint64, seen map[string]int) {
	w.create(70)
	n := newNetwork(seed, 0.15)
	n.seen = seen
	far := func(last *int) *channels.Site {
		s := w.site(last)
		return &channels.Site{Channels: flaky{s.Channels, n}, Posts: flaky{s.Posts, n}}
	}
	rates := faultqueue.Rates{Throttled: 0.03, Unavailable: 0.03, LostRequest: 0.03, LostResponse: 0.03, Duplicate: 0.03, Slow: 0.02, Late: 0.03}
	queues := []*faultqueue.Queue{}
	var workers []*process
	for i := range 2 {
		q := must(faultqueue.New(w.queue, &faultqueue.Options{Seed: seed*2 + uint64(i), Every: rates}))
		queues = append(queues, q)
		workers = append(workers, w.start(q, far(nil)))
	}
	leave := w.visitors(far, 300*time.Millisecond)
	for round := range uint64(4) {
		time.Sleep(time.Duration(seed%7) * time.Second)
		if c, err := w.site(nil).Channel(w.Context(), theName); err == nil {
			w.request(c)
			if (seed+round)%2 == 0 {
				w.request(c) // a duplicate; without one, nobody else asks again
			}
		}
		time.Sleep(20 * time.Second)
		c, err := far(nil).Create(w.Context(), theName, fmt.Sprint("seed ", seed))
		for range 30 {
			if err == nil { // the one before is marked or gone
				w.write(w.client(), c)
			}
		}
	}
	leave()
	n.becomeCalm()
	n.late.Wait()
	time.Sleep(2 * time.Minute)
	w.settle()
	for _, p := range workers {
		p.end(false)
	}
	for _, q := range queues {
		q.Wait()
	}
}
