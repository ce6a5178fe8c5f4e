package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestAReservationWaitsForTheLeastOrTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, 32)
		if n := s.reserve(t.Context(), 32, 4, time.Second); n != 10 {
			t.Fatalf("got %d of 10 free slots", n)
		}
		got := make(chan int)
		begin := time.Now()
		reserve := func() { got <- s.reserve(t.Context(), 32, 4, time.Second) }

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
		s := newSlots(1, 32)
		if s.reserve(t.Context(), 1, 1, 0) != 1 {
			t.Fatal("the only slot is not free")
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
				got <- s.reserve(ctx, 1, 1, time.Second)
			}()
		}
		synctest.Wait()
		cancel()
		if a, b := <-got, <-got; a != 0 || b != 0 {
			t.Errorf("got %d and %d", a, b)
		}
		s.unreserve(1)
		if n := s.reserve(t.Context(), 1, 1, 0); n != 1 {
			t.Errorf("got %d after the slot was freed", n)
		}
	})
}

// At most as many settlements as there are slots go on beside new handlers; beyond,
// slots wait for them.
func TestSlotsWaitWhenTooManySettlementsArePending(t *testing.T) {
	s := newSlots(2, 32)
	for i := range 3 {
		if s.reserve(t.Context(), 1, 1, 0) != 1 {
			t.Fatalf("no slot for delivery %d", i)
		}
		s.started()
		s.settling(true)
	}
	if n, free := s.take(2, 1, false); n != 1 || free != 1 {
		t.Errorf("took %d of %d, want 1 of 1: the third settlement holds a slot", n, free)
	}
	s.settled()
	if n, _ := s.take(2, 1, false); n != 1 {
		t.Error("the slot was not freed with the settlement")
	}
}

// The books of the slots balance under any order of events.
func TestSlotsBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 20).Draw(t, "size")
		s := newSlots(size, 32)
		open := size
		reserved, running, settling := 0, 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) {
				most := rapid.IntRange(1, 32).Draw(t, "most")
				n, _ := s.take(most, 1, false)
				reserved += n
				if n > most {
					t.Fatalf("took %d of at most %d", n, most)
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
					s.settling(true)
				}
			},
			"settle": func(*rapid.T) {
				if settling > 0 {
					settling--
					s.settled()
				}
			},
			"open": func(t *rapid.T) {
				open = rapid.IntRange(1, 40).Draw(t, "open")
				s.setOpen(open, 40)
			},
			"": func(t *rapid.T) {
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.used != reserved+running || s.running != running || s.pending != settling {
					t.Fatalf("used %d running %d pending %d; want %d, %d, %d", s.used, s.running, s.pending,
						reserved+running, running, settling)
				}
				if held := max(settling-size, 0); s.used+held > size {
					t.Fatalf("of %d slots %d are used and %d held", size, s.used, held)
				}
			},
		})
	})
}
