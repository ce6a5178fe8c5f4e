package dispatcher

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// fewSlots are shared slots of which so many are free, and a record of the calls. One goroutine at a time
// may use them.
type fewSlots struct {
	free     int
	taken    int
	joined   error
	freed    chan<- struct{}
	requests []SlotRequest
	withdraw int
	left     int
}

func (s *fewSlots) Size() (int, error)               { return 40, nil }
func (s *fewSlots) Join(freed chan<- struct{}) error { s.freed = freed; return s.joined }
func (s *fewSlots) Withdraw()                        { s.withdraw++ }
func (s *fewSlots) Free(n int)                       { s.free += n; s.taken -= n }
func (s *fewSlots) Leave()                           { s.left += s.taken; s.taken = 0 }

func (s *fewSlots) Take(r SlotRequest) (taken, free int) {
	s.requests = append(s.requests, r)
	if s.free < r.Least {
		return 0, s.free
	}
	n := min(s.free, r.Most)
	s.free -= n
	s.taken += n
	return n, n
}

// sharing returns slots that take theirs from the shared ones.
func sharing(t *testing.T, size int, shared *fewSlots) *slots {
	t.Helper()
	s := newSlots(size, 32, nil).share(shared)
	if err := s.join(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSharedSlotsAreReturnedAsHandlersEnd(t *testing.T) {
	shared := &fewSlots{free: 5}
	s := sharing(t, 10, shared)
	if n, _ := s.take(8, 1, false); n != 5 || shared.taken != 5 {
		t.Fatalf("got %d slots, with %d shared ones, want the 5 that are free", n, shared.taken)
	}
	s.started()
	s.started()
	s.unreserve(3)
	s.freeForSettlement(true)
	if shared.taken != 1 || s.used != 1 {
		t.Errorf("got %d shared slots for %d in use, want 1", shared.taken, s.used)
	}
	s.giveUp()
	if shared.taken != 0 || shared.free != 5 {
		t.Errorf("got %d shared slots in use at the end, want none", shared.taken)
	}
}

// What is still held when the dispatcher leaves is returned then, and not a second time by a handler that was
// abandoned.
func TestSharedSlotsAreReturnedOnce(t *testing.T) {
	shared := &fewSlots{free: 5}
	s := sharing(t, 10, shared)
	s.take(5, 1, false)
	s.started()
	s.leave()
	s.freeForSettlement(true)
	s.unreserve(4)
	if shared.left != 5 || shared.free != 0 {
		t.Errorf("got %d slots returned on leaving and %d later, want 5 and none", shared.left, shared.free)
	}
	s.leave()
	if shared.left != 5 {
		t.Error("left twice, want once")
	}
}

// A caller that does not wait any more, or for its own slots only, holds no place among those that share.
func TestACallerThatEndsWaitingWithdraws(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fewSlots{}
		s := sharing(t, 4, shared)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan int)
		go func() { got <- s.reserve(ctx, 8, fixed(1), time.Second) }()
		synctest.Wait()
		if len(shared.requests) != 1 || shared.withdraw != 0 {
			t.Fatalf("got %d requests and %d withdrawals, want one and none", len(shared.requests), shared.withdraw)
		}
		cancel()
		if n := <-got; n != 0 || shared.withdraw != 1 {
			t.Errorf("got %d slots and %d withdrawals after the end, want none and one", n, shared.withdraw)
		}

		shared.free = 4
		s.take(4, 1, false)
		s.unreserve(1)
		shared.free = 0
		s.take(1, 1, false)
		s.resize(2)
		s.take(1, 1, false)
		if shared.withdraw != 2 {
			t.Errorf("got %d withdrawals when no slot of its own is left, want a second one", shared.withdraw)
		}
	})
}

// A signal of the shared slots ends the wait, and the linger begins when the first one is kept.
func TestAReservationWaitsForSharedSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := &fewSlots{}
		s := sharing(t, 10, shared)
		got := make(chan int)
		go func() { got <- s.reserve(t.Context(), 8, fixed(4), time.Second) }()
		time.Sleep(time.Hour)
		synctest.Wait()
		shared.free = 1
		shared.freed <- struct{}{}
		begin := time.Now()
		if n := <-got; n != 1 || time.Since(begin) != time.Second {
			t.Errorf("got %d slots after %v, want one after the linger", n, time.Since(begin))
		}
		go func() { got <- s.reserve(t.Context(), 8, fixed(4), time.Second) }()
		synctest.Wait()
		shared.free = 6
		shared.freed <- struct{}{}
		if n := <-got; n != 6 {
			t.Errorf("got %d slots, want the 6 that are free now", n)
		}
	})
}

// Without shared slots no more can be opened by the listener: a wait for them is not one for a growth.
func TestAWaitForSharedSlotsIsNotOneForMoreOpenSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		waits := make(chan bool, 1)
		shared := &fewSlots{}
		s := newSlots(64, 32, func(mayOpen bool) { waits <- mayOpen }).share(shared)
		if err := s.join(); err != nil {
			t.Fatal(err)
		}
		s.setOpen(32, 64)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.reserve(ctx, 32, fixed(1), time.Second)
		if mayOpen := <-waits; mayOpen || s.saturated() {
			t.Errorf("got mayOpen %v and saturated %v without a shared slot, want neither", mayOpen, s.saturated())
		}
		cancel()
		synctest.Wait()
	})
}

// How much a dequeue may well bring follows from the last one, so that idle queues do not hold slots.
func TestTheNextDequeueIsExpectedToBringLittleAfterAnEmptyOne(t *testing.T) {
	shared := &fewSlots{free: 40}
	s := sharing(t, 40, shared)
	for _, c := range []struct{ received, want int }{{0, 0}, {3, 12}, {32, 128}, {0, 0}} {
		s.received(c.received, 32)
		n, _ := s.take(4, 1, false)
		if r := shared.requests[len(shared.requests)-1]; r.Likely != c.want || r.Unanswered != 0 || r.Most != 4 || r.Least != 1 || r.Backlog != (c.received == 32) || r.Bound != 40 {
			t.Errorf("got request %+v after a dequeue of %d of 32, want %d likely, and a bound of 40", r, c.received, c.want)
		}
		s.unreserve(n)
	}
	if shared.withdraw != 2 {
		t.Errorf("got %d withdrawals, want one after each empty dequeue", shared.withdraw)
	}
	s.setOpen(8, 8)
	s.setOpen(8, 24) // more when there is more work
	s.take(4, 1, false)
	if r := shared.requests[len(shared.requests)-1]; r.Bound != 24 {
		t.Errorf("got a bound of %d, want the 24 that may be opened", r.Bound)
	}
	s.started()
	s.take(4, 1, false)
	if r := shared.requests[len(shared.requests)-1]; r.Unanswered != 3 {
		t.Errorf("got %d slots of dequeues in flight, want 3", r.Unanswered)
	}
}

// Slots that are released without a dequeue are free for others at once, and say nothing about the queue.
func TestReleasedSlotsSayNothingAboutTheQueue(t *testing.T) {
	shared := &fewSlots{free: 40}
	handler := func(context.Context, *Message[string]) error { return nil }
	d, err := New(unusedQueue{}, Jobs[string]{Handler: handler}, &Options{Slots: shared, Poison: poison.Policy{Keep: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.slots.received(10, 10)
	d.noteBacklog(true)
	n := d.Reserve(t.Context())
	d.Release(n)
	if n == 0 || shared.taken != 0 || shared.withdraw != 1 || !d.Backlog() {
		t.Errorf("released %d: got %d in use, %d withdrawals, a backlog %v; want none, one, and as before", n, shared.taken, shared.withdraw, d.Backlog())
	}
	d.Release(d.Reserve(t.Context()))
	if r := shared.requests[1]; r.Likely != 40 {
		t.Errorf("got %d messages likely, want 40, as before", r.Likely)
	}
	if err := d.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestADispatcherWhoseSlotsAreInUseDoesNotStart(t *testing.T) {
	shared := &fewSlots{joined: errors.New("in use")}
	handler := func(context.Context, *Message[string]) error { return nil }
	d, err := New(unusedQueue{}, Jobs[string]{Handler: handler}, &Options{Slots: shared, Poison: poison.Policy{Keep: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context()); !errors.Is(err, shared.joined) {
		t.Errorf("got error %v, want that of the slots", err)
	}
	if n := d.slots.capacity(); n != 40 {
		t.Errorf("got a concurrency of %d, want the number of shared slots", n)
	}
}

// unusedQueue is a queue of which only the name is asked.
type unusedQueue struct{ queue.Queue }

func (unusedQueue) Name() queue.Name                    { return queue.Name{Queue: "jobs"} }
func (q unusedQueue) Sibling(suffix string) queue.Queue { return q }
