package slots_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
)

// rankLoad is two ranks that always have a backlog.
type rankLoad struct {
	slots        int
	first, lower time.Duration // of their handlers
	latency      time.Duration // of a dequeue
}

func (l rankLoad) String() string {
	return fmt.Sprintf("%d slots, handlers of %v and %v, dequeues of %v", l.slots, l.first, l.lower, l.latency)
}

// run returns which parts of the slots run handlers of the first and of the second on average.
func (l rankLoad) run(t *testing.T, ranked, alone bool) (first, second float64) {
	bubble(t, &slots.SharedOptions{Slots: l.slots}, func(b *bundle) {
		workers := []*worker{b.worker("first", nil, l.first)}
		if !alone {
			m := &slots.MemberOptions{}
			if ranked {
				m.Rank = 1
			}
			workers = append(workers, b.worker("second", m, l.lower))
		}
		for _, w := range workers {
			w.queue.latency.Store(int64(l.latency))
			w.spread, w.refill = true, true
			w.put(20 * l.slots).start()
			advance(5 * time.Second) // the first rank has its backlog before the other comes
		}
		advance(max(10*time.Second, 2*l.lower))
		var sums [2]float64
		const samples = 1000
		for range samples {
			advance(29 * time.Millisecond)
			for i, w := range workers {
				sums[i] += float64(w.running.Load())
			}
		}
		first, second = sums[0]/samples/float64(l.slots), sums[1]/samples/float64(l.slots)
		for _, w := range workers {
			w.halt()
		}
	})
	return first, second
}

// While the first rank always has a backlog, the next one takes at most a twentieth of the handler time, whether handlers
// are short or long and dequeues fast or slow. The price is that the slots are used as by the first rank alone (S-06).
func TestALowerRankLeavesTheSlotsToABacklog(t *testing.T) {
	for i, l := range []rankLoad{
		{8, 50 * time.Millisecond, time.Second, 10 * time.Millisecond},
		{8, time.Second, time.Minute, 10 * time.Millisecond},
		{20, 200 * time.Millisecond, 10 * time.Second, 100 * time.Millisecond},
		{64, time.Second, time.Second, 10 * time.Millisecond},
		{64, time.Second, time.Minute, 300 * time.Millisecond},
		{64, 10 * time.Second, time.Minute, 10 * time.Millisecond},
		{64, 200 * time.Millisecond, 10 * time.Second, time.Second},
	} {
		t.Run(l.String(), func(t *testing.T) {
			if i > 0 {
				skipLong(t)
			}
			first, second := l.run(t, true, false)
			alone, _ := l.run(t, true, true)
			weighted, other := l.run(t, false, false)
			lower := second / (first + second)
			t.Logf("the lower rank took %.1f %% of the handler time; the first used %.0f %% of the slots, %.0f %% alone; both %.0f %% in a pool with weights only",
				100*lower, 100*first, 100*alone, 100*(weighted+other))
			if lower > 0.05 || first < 0.8*alone {
				t.Errorf("the lower rank took %.1f %% of the handler time, and the first %.2f of the slots; want at most 5 %%, and about %.2f", 100*lower, first, alone)
			}
		})
	}
}

// Where the first rank has no backlog, the next one has all that it leaves.
func TestALowerRankHasWhatNobodyBeforeItCanUse(t *testing.T) {
	t.Run("a trickle", func(t *testing.T) {
		bubble(t, &slots.SharedOptions{Slots: 20}, func(b *bundle) {
			first := b.worker("first", nil, 100*time.Millisecond).start()
			second := b.worker("second", &slots.MemberOptions{Rank: 1}, time.Second).put(40)
			second.refill = true
			second.start()
			sum := 0.0
			for i := range 3000 {
				if i%20 == 0 {
					first.put(1) // every 200 ms
				}
				advance(10 * time.Millisecond)
				sum += float64(second.running.Load())
			}
			if n := sum / 3000; n < 17 {
				t.Errorf("got %.1f handlers of the lower rank beside a message every 200 ms, want at least 17 of 20", n)
			}
			first.halt()
			second.halt()
		})
	})
	t.Run("a bound", func(t *testing.T) {
		bubble(t, &slots.SharedOptions{Slots: 20}, func(b *bundle) {
			first := b.worker("first", nil, time.Second).put(40)
			first.refill, first.options.Concurrency = true, 8
			first.start()
			second := b.worker("second", &slots.MemberOptions{Rank: 1}, time.Second).put(40)
			second.refill = true
			second.start()
			advance(10 * time.Second)
			held := averages(20*time.Second, first, second)
			if held[0] < 7 || held[1] < 11 {
				t.Errorf("got %.1f slots, want about 8 for the first rank and 12 for the next", held)
			}
			first.halt()
			second.halt()
		})
	})
}

// Slots are kept for a member that has shown a backlog: until it has all that it can use, rests, or has not asked
// again for 5 s.
func TestSlotsAreKeptForABacklogUntilItEnds(t *testing.T) {
	full := dispatcher.SlotRequest{Least: 1, Most: 4, Likely: 40, Backlog: true, Bound: 8}
	for _, c := range []struct {
		name string
		do   func(first taker)
		want int // slots for the next rank
	}{
		{"in flight", func(taker) {}, 2},
		{"for long", func(taker) { time.Sleep(4 * time.Second) }, 2},
		{"for too long", func(taker) { time.Sleep(6 * time.Second) }, 6},
		{"rests", func(first taker) { first.Withdraw() }, 6},
		{"leaves", func(first taker) { first.Leave() }, 10},
		{"comes back", func(first taker) {
			first.Leave()
			if err := first.Join(first.freed); err != nil {
				first.Fatal(err)
			}
		}, 10},
		{"has all", func(first taker) { first.Take(full) }, 2},
		{"has no backlog", func(first taker) {
			first.Take(dispatcher.SlotRequest{Least: 1, Most: 1, Likely: 1, Bound: 8})
		}, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := must(slots.NewShared(&slots.SharedOptions{Slots: 10}))
				first, second := ranked(t, p, 0, 0), ranked(t, p, 1, 0)
				if n, _ := first.Take(full); n != 4 {
					t.Fatalf("got %d slots for the first, want 4", n)
				}
				got, _ := second.Take(dispatcher.SlotRequest{Least: 1, Most: 10, Likely: 40, Bound: 10})
				if got != 2 {
					t.Fatalf("got %d slots for the next rank, want the 2 that the first cannot use", got)
				}
				second.Take(dispatcher.SlotRequest{Least: 1, Most: 10, Likely: 40, Bound: 10})
				second.told()
				c.do(first)
				synctest.Wait()
				if second.told() != (c.want > 2) {
					t.Errorf("the next rank was told: %v, want %v", c.want <= 2, c.want > 2)
				}
				n, _ := second.Take(dispatcher.SlotRequest{Least: 1, Most: 10, Likely: 40, Bound: 10})
				if got += n; got != c.want {
					t.Errorf("got %d slots for the next rank, want %d", got, c.want)
				}
				first.Leave()
				second.Leave()
			})
		})
	}
}

// ranked returns a taker of a rank with a reserve.
func ranked(t *testing.T, p *slots.Shared, rank, reserve int) taker {
	m := taker{t, p.Member(&slots.MemberOptions{Rank: rank, Reserve: reserve}), make(chan struct{}, 1)}
	if err := m.Join(m.freed); err != nil {
		t.Fatal(err)
	}
	return m
}

// What a busy member has in reserve is not kept a second time.
func TestAReserveCountsTowardsWhatIsKept(t *testing.T) {
	p := must(slots.NewShared(&slots.SharedOptions{Slots: 10}))
	first, second := ranked(t, p, 0, 6), ranked(t, p, 1, 0)
	if n, _ := first.Take(dispatcher.SlotRequest{Least: 1, Most: 4, Likely: 40, Backlog: true, Bound: 8}); n != 4 {
		t.Fatalf("got %d slots for the first, want 4", n)
	}
	if n, _ := second.Take(dispatcher.SlotRequest{Least: 1, Most: 10, Likely: 40, Bound: 10}); n != 2 {
		t.Errorf("got %d slots for the next rank, want 2: the first can use 8, and holds or reserves 6", n)
	}
}

// A wait that ends earlier than one that the pool already waits for ends in time.
func TestAnEarlierExpectationEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := must(slots.NewShared(&slots.SharedOptions{Slots: 10}))
		busy, one, other := ranked(t, p, 0, 0), ranked(t, p, 1, 0), ranked(t, p, 1, 0)
		busy.Take(dispatcher.SlotRequest{Least: 1, Most: 4, Likely: 40, Backlog: true, Bound: 4}) // for 5 s
		one.want(3, 1, 3, 0)
		other.want(3, 1, 3, 0)
		other.want(0, 1, 8, 0)
		one.want(0, 1, 8, 0)
		one.Free(1)
		one.want(1, 1, 8, 0) // and it is expected to ask again
		one.Free(2)
		if other.told() {
			t.Fatal("the other member was told of slots that are kept")
		}
		time.Sleep(300 * time.Millisecond)
		synctest.Wait()
		if !other.told() {
			t.Error("the other member was not told of the slots when the wait for the first one was over")
		}
		for _, m := range []taker{busy, one, other} {
			m.Leave()
		}
	})
}
