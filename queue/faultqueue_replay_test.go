package queue_test

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue/faultqueue"
)

// run handles messages with several concurrent workers, under faults, and returns the trace.
func run(t *testing.T, seed uint64) (trace []faultqueue.Call) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, faultqueue.Options{
			Seed:    seed,
			Every:   faultqueue.Rates{Throttled: 0.1, Unavailable: 0.05, LostRequest: 0.1, LostResponse: 0.1, Duplicate: 0.05, Slow: 0.05, Late: 0.05},
			Missing: faultqueue.Window{Within: 5 * time.Second, For: 5 * time.Second},
			// Without latency the trace would depend on the order of calls at the same instant.
			UsualLatency: faultqueue.Range{Min: time.Millisecond, Max: time.Second},
		})
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range 20 {
					for {
						if _, err := q.Enqueue(t.Context(), fmt.Sprintf("%d of %d", i, worker), nil); err == nil {
							break
						}
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		for worker := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(worker) * time.Millisecond)
				for depth(t, inner) > 0 {
					batch, _ := q.Dequeue(t.Context(), 8, 30*time.Second)
					for _, m := range batch {
						_ = q.Delete(t.Context(), m.Lease)
					}
					if len(batch) == 0 {
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		q.Wait()
		trace = q.Trace()
	})
	return trace
}

func TestSeedReplays(t *testing.T) {
	first := run(t, 7)
	if again := run(t, 7); !slices.Equal(first, again) {
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Fatalf("call %d of the second run: got\n%+v\nwant\n%+v", i, again[i], first[i])
			}
		}
		t.Fatalf("calls of the second run: got %d, want %d", len(again), len(first))
	}
	if other := run(t, 8); slices.Equal(first, other) {
		t.Error("another seed has the same trace")
	}
	faults := make(map[faultqueue.Fault]int)
	for _, c := range first {
		faults[c.Fault]++
	}
	for _, f := range []faultqueue.Fault{"", faultqueue.Throttled, faultqueue.Unavailable, faultqueue.LostRequest, faultqueue.LostResponse, faultqueue.Duplicate, faultqueue.Slow, faultqueue.Late, faultqueue.Arrival, faultqueue.Missing} {
		if faults[f] == 0 {
			t.Errorf("fault %q: got none in %d calls", f, len(first))
		}
	}
}

// The faults of calls do not depend on the order of the calls.
func TestFaultsAreIndependentOfTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		list := make([]string, 12)
		for i := range list {
			list[i] = strconv.Itoa(i % 6) // each twice
		}
		order := rapid.Permutation(list).Draw(rt, "order")
		faults := func(texts []string) map[string][]faultqueue.Fault {
			var all map[string][]faultqueue.Fault
			synctest.Test(t, func(t *testing.T) {
				q, _ := open(t, faultqueue.Options{Seed: seed, Every: faultqueue.Rates{Throttled: 0.3, LostRequest: 0.3}, UsualLatency: faultqueue.Range{Min: 1}})
				all = make(map[string][]faultqueue.Fault)
				for _, text := range texts {
					_, _ = q.Enqueue(t.Context(), text, nil)
					trace := q.Trace()
					all[text] = append(all[text], trace[len(trace)-1].Fault)
				}
			})
			return all
		}
		one, other := faults(list), faults(order)
		for text := range one {
			if !slices.Equal(one[text], other[text]) {
				rt.Errorf("faults of %q in another order: got %v, want %v", text, other[text], one[text])
			}
		}
	})
}

func TestRatesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{Seed: 3, Every: faultqueue.Rates{Throttled: 0.2, LostResponse: 0.1}})
		const calls = 4000
		for range calls {
			_, _ = q.Peek(t.Context(), 1)
		}
		count := make(map[faultqueue.Fault]int)
		for _, c := range q.Trace() {
			count[c.Fault]++
		}
		if n := count[faultqueue.Throttled]; n < calls*17/100 || n > calls*23/100 {
			t.Errorf("throttled calls at a rate of 0.2: got %d of %d", n, calls)
		}
		if n := count[faultqueue.LostResponse]; n < calls*8/100 || n > calls*12/100 {
			t.Errorf("lost responses at a rate of 0.1: got %d of %d", n, calls)
		}
	})
}
