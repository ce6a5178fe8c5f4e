package slots

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher"
)

// user is a listener of the model: it knows what it holds, and whether it waits.
type user struct {
	member  *Member
	reserve int
	freed   chan struct{}
	joined  bool
	left    bool
	held    int
	kept    int                     // what was kept for it when it last asked
	request *dispatcher.SlotRequest // it waits with; nil if it does not wait
	told    bool                    // what freed said since its last Take
	rank    int
	busy    bool // lower ranks leave it what it can use
	bound   int  // that it can hold
}

// model is a pool with its users, and what must hold after every step.
type model struct {
	*rapid.T
	shared *Shared
	slots  int
	ranks  int // of its members, beside -1; with 0 they have none
	users  []*user
}

// Whatever members do, in whatever order: no more slots are taken than there are, reserves are left alone,
// what is held is what was taken and not returned, and whoever waits is told when it would get slots.
func TestNoSlotIsLostAndNoneIsTakenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{T: t, slots: rapid.IntRange(1, 40).Draw(t, "slots")}
		m.shared, m.ranks = must(NewShared(&SharedOptions{Slots: m.slots})), rapid.IntRange(0, 3).Draw(t, "ranks")
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"make":     m.make,
			"join":     m.join,
			"take":     m.take,
			"free":     m.free,
			"withdraw": m.withdraw,
			"leave":    m.leave,
			"resize":   m.resize,
			"expire":   m.expire,
		})
	})
}

// pick returns a user for which the condition holds, or skips the step.
func (m *model) pick(t *rapid.T, condition func(*user) bool) *user {
	var some []*user
	for _, u := range m.users {
		if condition(u) {
			some = append(some, u)
		}
	}
	if len(some) == 0 {
		t.Skip("no member for this step")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "member")]
}

func (m *model) make(t *rapid.T) {
	o := &MemberOptions{
		Name:    fmt.Sprint(len(m.users)),
		Weight:  rapid.IntRange(0, 5).Draw(t, "weight"),
		Reserve: rapid.IntRange(0, 6).Draw(t, "reserve"),
	}
	if m.ranks > 0 {
		o.Rank = rapid.IntRange(-1, m.ranks-1).Draw(t, "rank")
	}
	u := &user{member: m.shared.Member(o), reserve: o.Reserve, rank: o.Rank, freed: make(chan struct{}, 1)}
	fits := m.fits(m.slots, u)
	if _, err := u.member.Size(); (err == nil) != fits {
		t.Fatalf("a member more with a reserve of %d, of %d slots: got error %v", o.Reserve, m.slots, err)
	}
	if fits {
		m.users = append(m.users, u)
	}
}

// fits reports whether so many slots are enough for the reserves of all that have not left, and of one more unless it
// is nil, and leave one to those without a reserve.
func (m *model) fits(slots int, more *user) bool {
	need, open := 0, 0
	for _, u := range m.users {
		if !u.left || u == more {
			need += u.reserve
			open = max(open, 1-u.reserve)
		}
	}
	if more != nil && !slices.Contains(m.users, more) {
		need += more.reserve
		open = max(open, 1-more.reserve)
	}
	return need+open <= slots
}

func (m *model) join(t *rapid.T) {
	u := m.pick(t, func(u *user) bool { return !u.joined })
	fits := m.fits(m.slots, u)
	if err := u.member.Join(u.freed); (err == nil) != fits {
		t.Fatalf("join of a member with a reserve of %d, of %d slots: got error %v", u.reserve, m.slots, err)
	}
	if fits {
		u.joined, u.left = true, false
	}
	if err := u.member.Join(u.freed); err == nil {
		t.Fatal("a second listener joined by the same member")
	}
}

func (m *model) take(t *rapid.T) {
	u := m.pick(t, func(u *user) bool { return u.joined })
	most := rapid.IntRange(1, 12).Draw(t, "most")
	r := dispatcher.SlotRequest{
		Least: rapid.IntRange(1, most).Draw(t, "least"), Most: most,
		Likely: rapid.IntRange(0, 12).Draw(t, "likely"), Unanswered: rapid.IntRange(0, u.held).Draw(t, "unanswered"),
		Backlog: rapid.Bool().Draw(t, "backlog"), Bound: u.held + rapid.IntRange(0, 12).Draw(t, "room"),
	}
	m.takeWith(t, u, r)
}

func (m *model) takeWith(t *rapid.T, u *user, r dispatcher.SlotRequest) {
	m.drain(u)
	u.told = false
	unused := max(u.reserve-u.held, 0)
	free := m.freeSlots() - m.unusedReserves() - m.keptBefore(u.rank) // for all
	u.busy, u.bound = r.Backlog && m.shared.ranked(), r.Bound
	n, kept := u.member.Take(r)
	switch {
	case n == 0:
		u.request, u.kept = &r, kept
		if kept >= r.Least {
			t.Fatalf("got none of %d free slots, want at least %d", kept, r.Least)
		}
	case n > r.Most:
		t.Fatalf("got %d slots, want at most %d", n, r.Most)
	case n > unused+max(free, 0):
		t.Fatalf("got %d slots, with %d free for all and %d of its own: others reserved them, or are before it", n, free, unused)
	default:
		u.request = nil
		u.held += n
	}
}

func (m *model) freeSlots() int {
	free := m.slots
	for _, u := range m.users {
		free -= u.held
	}
	return free
}

func (m *model) unusedReserves() (n int) {
	for _, u := range m.users {
		if !u.left {
			n += max(u.reserve-u.held, 0)
		}
	}
	return n
}

// keptBefore returns how many slots are left to busy members of the ranks before this one.
func (m *model) keptBefore(rank int) (n int) {
	for _, u := range m.users {
		if u.busy && u.rank < rank {
			n += max(u.bound-max(u.held, u.reserve), 0)
		}
	}
	return n
}

func (m *model) free(t *rapid.T) {
	u := m.pick(t, func(u *user) bool { return u.held > 0 })
	n := rapid.IntRange(1, u.held).Draw(t, "n")
	u.held -= n
	u.member.Free(n)
}

func (m *model) withdraw(t *rapid.T) {
	u := m.pick(t, func(u *user) bool { return u.request != nil })
	u.request, u.busy = nil, false
	u.member.Withdraw()
}

func (m *model) leave(t *rapid.T) {
	u := m.pick(t, func(u *user) bool { return u.joined })
	u.member.Leave()
	u.joined, u.left, u.held, u.request, u.busy = false, true, 0, nil, false
}

func (m *model) resize(t *rapid.T) {
	n := rapid.IntRange(1, 40).Draw(t, "slots")
	fits := m.fits(n, nil)
	if err := m.shared.Resize(n); (err == nil) != fits {
		t.Fatalf("resize to %d: got error %v", n, err)
	}
	if fits {
		m.slots = n
	}
}

// drain notes what the pool has said to a user.
func (m *model) drain(u *user) {
	select {
	case <-u.freed:
		u.told = true
	default:
	}
}

func (m *model) check(t *rapid.T) {
	st := m.shared.State()
	held := 0
	for _, u := range m.users {
		held += u.held
		m.drain(u)
	}
	if st.Held != held || st.Slots != m.slots {
		t.Fatalf("the pool says that %d of %d slots are held, want %d of %d", st.Held, st.Slots, held, m.slots)
	}
	members := 0
	for _, u := range m.users {
		if !u.left {
			members++
		}
	}
	if len(st.Members) != members {
		t.Fatalf("the pool has %d members, want %d", len(st.Members), members)
	}
	if got, want := m.shared.idle, m.unusedReserves(); got != want {
		t.Fatalf("the pool keeps %d slots for reserves, want %d", got, want)
	}
	m.checkWaiting(t)
}

// checkWaiting asks again for everybody who waits, as it does when it is told. Who was not told must get
// nothing.
func (m *model) checkWaiting(t *rapid.T) {
	for _, u := range m.users {
		if m.drain(u); u.request == nil || u.told {
			continue
		}
		held, kept := u.held, u.kept
		m.takeWith(t, u, *u.request)
		if u.held != held {
			t.Fatalf("a member that waited got %d slots when it asked again, and was not told", u.held-held)
		}
		if u.kept > 0 && kept == 0 {
			t.Fatalf("%d slots are kept for a member that was not told: its linger does not begin", u.kept)
		}
	}
	for again := true; again; {
		again = false
		for _, u := range m.users {
			if m.drain(u); u.request != nil && u.told {
				m.takeWith(t, u, *u.request)
				again = true
			}
		}
	}
}

// expire lets so much time pass that no member is expected to ask again soon. Then nobody may wait for what
// is free: what is kept for one that waits for more is less than that.
func (m *model) expire(t *rapid.T) {
	for range m.users { // those that ask again, and are served, are expected once more
		m.shared.mu.Lock()
		for _, one := range m.shared.asking {
			if !one.waits {
				one.soon = time.Time{}
			}
		}
		for _, one := range m.shared.members {
			if !one.waits && !one.busy.IsZero() {
				one.busy = time.Now().Add(-time.Second)
			}
		}
		m.shared.mu.Unlock()
		m.shared.forget()
		for _, u := range m.users {
			u.busy = u.busy && u.request != nil
		}
		m.checkWaiting(t)
	}
	free := m.freeSlots() - m.unusedReserves()
	for _, u := range m.users {
		if u.request != nil && free >= 12 { // the most that anybody waits for
			t.Fatalf("a member waits for %+v with %d free slots", *u.request, free)
		}
		if u.request != nil && max(u.reserve-u.held, 0) >= u.request.Least && m.freeSlots() >= m.unusedReserves() {
			t.Fatalf("a member waits for %+v and has %d of its reserve", *u.request, u.reserve-u.held)
		}
	}
}
