package slots_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
)

// taker is a member without a listener.
type taker struct {
	*testing.T
	*slots.Member
	freed chan struct{}
}

// takers returns members of one weight that hold so many slots of a shared.
func takers(t *testing.T, n int, held ...int) []taker {
	p := must(slots.NewShared(&slots.SharedOptions{Slots: n}))
	var all []taker
	for _, n := range held {
		m := taker{t, p.Member(nil), make(chan struct{}, 1)}
		if err := m.Join(m.freed); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
		m.want(n, 1, n, 0)
	}
	return all
}

// want takes slots and checks how many it got, and how many are kept for it.
func (m taker) want(n, least, most, kept int) {
	m.Helper()
	taken, free := m.Take(dispatcher.SlotRequest{Least: least, Most: most, Likely: 100})
	if taken != n || taken == 0 && free != kept {
		m.Fatalf("got %d slots and %d kept, want %d and %d", taken, free, n, kept)
	}
}

func (m taker) told() bool {
	select {
	case <-m.freed:
		return true
	default:
		return false
	}
}

// What a member does not take is kept for the next one, whose linger begins.
func TestTheNextMemberIsToldOfWhatOneLeaves(t *testing.T) {
	m := takers(t, 36, 4, 4, 28)
	m[0].want(0, 4, 8, 0)
	m[1].want(0, 4, 8, 0)
	m[2].Free(3)
	if !m[0].told() || m[1].told() {
		t.Fatal("want that the first that waited is told, and only that")
	}
	m[0].want(0, 4, 8, 3)
	m[0].want(2, 1, 8, 0)
	if !m[1].told() {
		t.Error("the next member was not told of the slot that is left")
	}
	m[1].want(0, 4, 8, 1)
}

// While others wait fewer slots are worth a dequeue, so a member that waited alone may have enough then.
func TestAMemberIsToldThatFewerSlotsAreWorthADequeue(t *testing.T) {
	m := takers(t, 36, 4, 4, 28)
	m[0].want(0, 10, 20, 0)
	m[2].Free(6)
	m[2].Withdraw()
	m[0].told()
	m[0].want(0, 10, 20, 6)
	m[1].want(0, 10, 20, 0)
	if !m[0].told() {
		t.Error("the first member was not told that what is kept for it is enough now")
	}
	m[0].want(6, 10, 20, 0)
}

// While a member that was told does not ask, another one may come to be before it. Then that one is told.
func TestAMemberThatIsOvertakenPassesTheSlotOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := takers(t, 12, 2, 8, 2)
		m[0].want(0, 1, 8, 0)
		m[1].want(0, 1, 8, 0)
		time.Sleep(5 * time.Second) // the first is behind
		m[1].Withdraw()
		m[2].Withdraw()
		m[1].Free(5)
		m[0].want(3, 1, 3, 0)
		m[2].want(2, 1, 2, 0)
		m[2].Withdraw()
		m[0].want(0, 1, 8, 0)
		m[1].want(0, 1, 8, 0)
		m[0].told()
		m[1].told()
		m[2].Free(1)
		if !m[0].told() || m[1].told() {
			t.Fatal("want that the first is told, and only that")
		}
		time.Sleep(30 * time.Second) // the first has had more than its share
		m[0].want(0, 1, 8, 0)
		if !m[1].told() {
			t.Fatal("the second, which comes first now, was not told")
		}
		m[1].want(1, 1, 8, 0)
	})
}

// More slots than were taken cannot be returned: something is counted twice.
func TestReturningMoreSlotsThanWereTakenPanics(t *testing.T) {
	m := takers(t, 4, 2)
	defer func() {
		if recover() == nil {
			t.Error("got no panic, want one")
		}
	}()
	m[0].Free(3)
}
