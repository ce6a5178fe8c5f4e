package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/keyed"
)

func TestAReservationWaitsForMinFetchOrTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, 32, nil)
		if n := s.reserve(t.Context(), 32, fixed(4), time.Second); n != 10 {
			t.Fatalf("got %d free slots, want 10", n)
		}
		got := make(chan int)
		begin := time.Now()
		reserve := func() { got <- s.reserve(t.Context(), 32, fixed(4), time.Second) }

		go reserve()
		synctest.Wait()
		s.unreserve(3)
		synctest.Wait()
		select {
		case n := <-got:
			t.Fatalf("got %d when 3 of 4 were free", n)
		default:
		}
		s.unreserve(2)
		if n := <-got; n != 5 || time.Since(begin) != 0 {
			t.Errorf("got %d after %v, want 5 at once", n, time.Since(begin))
		}

		go reserve()
		synctest.Wait()
		s.unreserve(1)
		if n := <-got; n != 1 || time.Since(begin) != time.Second {
			t.Errorf("got %d after %v, want 1 after the linger", n, time.Since(begin))
		}
	})
}

func TestAReservationEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1, 32, nil)
		if s.reserve(t.Context(), 1, fixed(1), 0) != 1 {
			t.Fatal("got no slot, want the only one")
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan int, 2)
		for range 2 { // one waits for a slot, the other for its turn
			go func() {
				if !s.takeTurn(ctx) {
					got <- 0
					return
				}
				defer s.endTurn()
				got <- s.reserve(ctx, 1, fixed(1), time.Second)
			}()
		}
		synctest.Wait()
		cancel()
		if a, b := <-got, <-got; a != 0 || b != 0 {
			t.Errorf("got %d and %d, want 0 and 0", a, b)
		}
		s.unreserve(1)
		if n := s.reserve(t.Context(), 1, fixed(1), 0); n != 1 {
			t.Errorf("got %d after the slot was freed, want 1", n)
		}
	})
}

// At most as many settlements as there are slots run beside new handlers; beyond that slots
// wait for them.
func TestSlotsWaitWhenTooManySettlementsArePending(t *testing.T) {
	s := newSlots(2, 32, nil)
	for i := range 3 {
		if s.reserve(t.Context(), 1, fixed(1), 0) != 1 {
			t.Fatalf("got no slot for delivery %d, want one", i)
		}
		s.started()
		s.freeForSettlement(true)
	}
	if n, free := s.take(2, 1, false); n != 1 || free != 1 {
		t.Errorf("got %d of %d slots, want 1 of 1: the third settlement holds one", n, free)
	}
	s.endSettlement(true)
	if n, _ := s.take(2, 1, false); n != 1 {
		t.Errorf("got %d slots after the settlement, want 1", n)
	}
}

// When the service refuses to delete, fetches back off: a round of refusals halves what may be fetched
// and settled together, and each window of accepted settlements adds one. Running handlers do not count.
func TestRefusedSettlementsHalveTheFetchesAndAcceptedOnesRaiseThem(t *testing.T) {
	s := newSlots(64, 32, nil)
	take := func() int {
		n, _ := s.take(32, 1, false)
		s.unreserve(n)
		return n
	}
	deliver := func() {
		s.reserve(t.Context(), 1, fixed(1), 0)
		s.started()
	}
	for range 20 {
		deliver()
	}
	for range 10 {
		s.freeForSettlement(true)
	}
	for i, want := range []int{22, 6, 0, 0} { // the windows are 32, 16, 8 and 8
		s.refused()
		if n := take(); n != want {
			t.Errorf("after %d refusals beside 10 settlements: got %d slots, want %d", i+1, n, want)
		}
	}
	for range 10 {
		s.endSettlement(false)
	}
	if n := take(); n != 8 {
		t.Errorf("got %d slots when no settlement is left, want 8", n)
	}
	s.reserve(t.Context(), 5, fixed(1), 0) // for a dequeue that is not answered
	if n := take(); n != 3 {
		t.Errorf("got %d slots beside a dequeue for 5, want 3", n)
	}
	s.unreserve(5)
	accepted := 0
	for ; take() < 32 && accepted < 1000; accepted++ {
		deliver()
		s.freeForSettlement(true)
		s.endSettlement(true)
	}
	if accepted < 400 || accepted > 500 { // from 8 to 32
		t.Errorf("got a whole batch again after %d accepted settlements, want about 32²/2 - 8²/2", accepted)
	}
	for range 20 {
		s.refused() // none is in progress
	}
	if n := take(); n != 1 {
		t.Errorf("got %d slots after 20 refusals, want 1: something must be tried", n)
	}
}

// A reservation that waits because too many settlements are in progress continues when one has
// ended, although no handler returns meanwhile.
func TestASettlementThatEndsWakesAWaitingReservation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2, 32, nil)
		for range 4 {
			if s.reserve(t.Context(), 1, fixed(1), 0) != 1 {
				t.Fatal("got no slot, want one")
			}
			s.started()
			s.freeForSettlement(true)
		}
		got := make(chan int)
		go func() { got <- s.reserve(t.Context(), 2, fixed(1), 0) }()
		for _, want := range []int{1, 1} {
			synctest.Wait()
			select {
			case n := <-got:
				t.Fatalf("got %d slots beside too many settlements, want none", n)
			default:
			}
			s.endSettlement(true)
			synctest.Wait()
			select {
			case n := <-got:
				if n != want {
					t.Fatalf("got %d slots, want %d", n, want)
				}
			case <-time.After(time.Minute):
				t.Fatal("the reservation was not woken when a settlement ended")
			}
			go func() { got <- s.reserve(t.Context(), 1, fixed(1), 0) }()
		}
		s.unreserve(2)
		if n := <-got; n != 1 {
			t.Errorf("got %d slots; want 1", n)
		}
	})
}

// Open slots that are no longer needed close as handlers return. Room for one dequeue beside the
// handlers stays open, within the maximum.
func TestOpenSlotsCloseAsHandlersReturn(t *testing.T) {
	s := newSlots(1000, 32, nil)
	s.setOpen(640, 640)
	take := func() int { n, _ := s.take(1000, 1, false); return n }
	for s.used < 600 {
		s.take(min(32, 600-s.used), 1, false)
	}
	for range 40 {
		s.started()
	}
	returned := func(n int) {
		for range n {
			s.freeForSettlement(true)
			s.endSettlement(true)
		}
	}
	for _, step := range []struct {
		name     string
		do       func()
		wantFree int
	}{
		{"19 of 20 loops have ended", func() { s.setOpen(32, 640) }, 32},
		{"the dequeue found nothing", func() { s.unreserve(32) }, 32},
		{"the dequeue found 32", func() {}, 0},
		{"many had no handler", func() { s.unreserve(100) }, 32},
		{"nothing came, and 20 handlers returned", func() { s.unreserve(32); take(); s.unreserve(32); returned(20) }, 32},
		{"more loops", func() { s.setOpen(640, 640) }, 640 - 532 - 12},
		{"few loops again", func() { s.unreserve(640 - 500); s.setOpen(32, 640) }, 32},
		{"handlers are given up one by one", func() {
			s.unreserve(32)
			for range 10 {
				s.giveUp()
			}
		}, 32},
		{"at most one loop may run", func() { s.unreserve(64); s.setOpen(32, 32) }, 0},
		{"all handlers but one returned", func() { s.unreserve(s.used - 1) }, 31},
		{"a higher concurrency opens no slots", func() { s.unreserve(31); s.resize(2000) }, 31},
		{"a lower concurrency closes slots", func() { s.unreserve(31); s.resize(3) }, 2},
	} {
		step.do()
		if n := take(); n != step.wantFree {
			t.Fatalf("%s: got %d free slots, want %d; open %d, used %d", step.name, n, step.wantFree, s.open, s.used)
		}
	}
}

// A reservation may exceed the open slots when allowed, once and within the concurrency.
func TestOpenOnceLetsOneReservationThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(50, 32, nil)
		s.setOpen(32, 50)
		if n := s.reserve(t.Context(), 32, fixed(1), 0); n != 32 || s.saturated() {
			t.Fatalf("got %d slots, saturated %v; want 32 and false", n, s.saturated())
		}
		got := make(chan int)
		go func() { got <- s.reserve(t.Context(), 32, fixed(1), 0) }()
		synctest.Wait()
		if !s.saturated() {
			t.Error("saturated: got false, want true while all open slots are taken and a caller waits")
		}
		s.openOnce(32)
		if n := <-got; n != 18 {
			t.Errorf("got %d slots, want the 18 that the concurrency leaves", n)
		}
		s.unreserve(18) // the dequeue found nothing
		go func() { got <- s.reserve(t.Context(), 32, fixed(1), 0) }()
		synctest.Wait()
		select {
		case n := <-got:
			t.Errorf("got %d more slots, want none without another openOnce", n)
		default:
		}
		s.resize(32)
		if s.saturated() {
			t.Error("saturated: got true, want false when no more slots could be opened")
		}
		s.unreserve(2)
		if n := <-got; n != 2 {
			t.Errorf("got %d slots, want 2", n)
		}
		s.resize(40)
		for range 100 {
			s.beginSettlement()
		}
		s.unreserve(2)
		if n, _ := s.take(1, 1, false); n > 0 || s.saturated() {
			t.Errorf("got %d slots beside too many settlements, saturated %v; want 0 and false", n, s.saturated())
		}
	})
}

// The counts of the slots are consistent under any order of events.
func TestTheCountsOfSlotsAreConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		s := newSlots(size, 32, nil)
		open := size
		reserved, running, settling := 0, 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				limit := rapid.IntRange(1, 32).Draw(t, "limit")
				n, _ := s.take(limit, 1, false)
				reserved += n
				if n > limit {
					t.Fatalf("got %d slots, want at most %d", n, limit)
				}
			},
			"unreserve": func(*rapid.T) {
				if reserved > 0 {
					reserved--
					s.unreserve(1)
				}
			},
			"start": func(*rapid.T) {
				if reserved > 0 {
					reserved--
					running++
					s.started()
				}
			},
			"return": func(*rapid.T) {
				if running > 0 {
					running--
					settling++
					s.freeForSettlement(true)
				}
			},
			"settle": func(*rapid.T) {
				if settling > 0 {
					settling--
					s.endSettlement(true)
				}
			},
			"open": func(t *rapid.T) {
				open = rapid.IntRange(1, 40).Draw(t, "open")
				s.setOpen(open, rapid.IntRange(open, 60).Draw(t, "max"))
			},
			"open once": func(t *rapid.T) { s.openOnce(rapid.IntRange(1, 32).Draw(t, "extra")) },
			"": func(t *rapid.T) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.used != reserved+running || s.running != running || s.pending != settling {
					t.Fatalf("got used %d, running %d, pending %d; want %d, %d, %d", s.used, s.running, s.pending,
						reserved+running, running, settling)
				}
				if s.open > size || s.open < min(open, size) {
					t.Fatalf("got %d open slots, want %d to %d", s.open, min(open, size), size)
				}
				if held := max(settling-size, 0); s.used+held > size {
					t.Fatalf("got %d slots used and %d held, want at most %d together", s.used, held, size)
				}
			},
		})
	})
}

// fixed returns a number of slots that never changes.
func fixed(n int) func() int { return func() int { return n } }

// A batch inside of an EachItem does not begin while a place is free that the next item is about to take.
func TestAnEachIsNotStalledBeforeItsNextItem(t *testing.T) {
	e := &eachCall{Each: keyed.Each{Places: make(chan struct{}, 3)}, begun: make(chan struct{}, 9)}
	e.Places <- struct{}{}
	stalled := e.enterBatch()
	select {
	case <-stalled:
		t.Error("the batch began before the next item")
	default:
	}
	e.end()
	<-stalled
}
