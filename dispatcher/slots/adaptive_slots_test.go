package slots

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/dispatcher"
)

// limitUser is a listener of the limitModel: it knows what it holds, and whether it waits.
type limitUser struct {
	slots   dispatcher.Slots
	member  *Member // within; nil for none
	freed   chan struct{}
	joined  bool
	left    bool
	held    int
	request *dispatcher.SlotRequest // it waits with; nil if it does not
	told    bool                    // what freed said since its last Take
	kept    int                     // what its last Take said is kept for it: then it asks again after its linger
}

// limitModel is a limit, and a pool that some of its users share with others.
type limitModel struct {
	*rapid.T
	limit  *Adaptive
	shared *Shared
	users  []*limitUser
}

// Whatever listeners do, in whatever order, and however the limit changes: no more slots are taken than the limit and the
// pool around it have, what is held is what was taken and not returned, in both, and whoever waits is told when it
// would get slots, unless some are kept for it: then it asks again by itself.
func TestALimitLosesNoSlotAndGivesNoneTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 30).Draw(t, "max")
		m := &limitModel{
			T:      t,
			limit:  must(NewAdaptive(&AdaptiveOptions{Max: most, Start: rapid.IntRange(1, most).Draw(t, "start")})),
			shared: must(NewShared(&SharedOptions{Slots: rapid.IntRange(1, 20).Draw(t, "pool")})),
		}
		t.Repeat(map[string]func(*rapid.T){
			"":         m.check,
			"make":     m.make,
			"join":     m.join,
			"take":     m.take,
			"free":     m.free,
			"withdraw": m.withdraw,
			"leave":    m.leave,
			"change":   m.change,
			"hold":     m.hold,
		})
	})
}

// pick returns a limitUser for which the condition holds, or skips the step.
func (m *limitModel) pick(t *rapid.T, condition func(*limitUser) bool) *limitUser {
	var some []*limitUser
	for _, u := range m.users {
		if condition(u) {
			some = append(some, u)
		}
	}
	if len(some) == 0 {
		t.Skip("no listener for this step")
	}
	return some[rapid.IntRange(0, len(some)-1).Draw(t, "listener")]
}

func (m *limitModel) make(t *rapid.T) {
	u := &limitUser{freed: make(chan struct{}, 1)}
	if rapid.Bool().Draw(t, "within") {
		if u.member = m.shared.Member(nil); len(m.shared.State().Members) == 0 {
			t.Skip("no room in the pool")
		}
		u.slots = m.limit.Slots(u.member)
	} else {
		u.slots = m.limit.Slots(nil)
	}
	if _, err := u.slots.Size(); err != nil {
		t.Skip("no room in the pool") // its place in the limit stays
	}
	m.users = append(m.users, u)
}

func (m *limitModel) join(t *rapid.T) {
	u := m.pick(t, func(u *limitUser) bool { return !u.joined })
	if err := u.slots.Join(u.freed); err != nil {
		t.Skip("no room in the pool")
	}
	u.joined, u.left = true, false
	if err := u.slots.Join(u.freed); err == nil {
		t.Fatal("a second listener joined with the same slots")
	}
}

func (m *limitModel) held() (all, within int) {
	for _, u := range m.users {
		all += u.held
		if u.member != nil {
			within += u.held
		}
	}
	return all, within
}

func (m *limitModel) take(t *rapid.T) {
	u := m.pick(t, func(u *limitUser) bool { return u.joined })
	most := rapid.IntRange(1, 12).Draw(t, "most")
	r := dispatcher.SlotRequest{
		Least: rapid.IntRange(1, most).Draw(t, "least"), Most: most,
		Likely: rapid.IntRange(0, 12).Draw(t, "likely"), Unanswered: rapid.IntRange(0, u.held).Draw(t, "unanswered"),
	}
	m.takeWith(t, u, r)
}

func (m *limitModel) takeWith(t *rapid.T, u *limitUser, r dispatcher.SlotRequest) {
	m.drain(u)
	u.told = false
	n, kept := u.slots.Take(r)
	u.kept = kept
	u.held += n
	all, within := m.held()
	switch {
	case n == 0:
		u.request = &r
		return
	case n > r.Most:
		t.Fatalf("got %d slots, want at most %d", n, r.Most)
	case all > m.limit.State().Limit:
		t.Fatalf("got %d slots: %d are taken, and the limit is %d", n, all, m.limit.State().Limit)
	case u.member != nil && within > m.shared.State().Slots:
		t.Fatalf("got %d slots: %d of the pool are taken, and it has %d", n, within, m.shared.State().Slots)
	case m.limit.isHeld():
		t.Fatalf("got %d slots while the limit holds back", n)
	}
	u.request = nil
}

func (m *limitModel) free(t *rapid.T) {
	u := m.pick(t, func(u *limitUser) bool { return u.held > 0 })
	n := rapid.IntRange(1, u.held).Draw(t, "n")
	u.held -= n
	u.slots.Free(n)
}

func (m *limitModel) withdraw(t *rapid.T) {
	u := m.pick(t, func(u *limitUser) bool { return u.request != nil })
	u.request = nil
	u.slots.Withdraw()
}

func (m *limitModel) leave(t *rapid.T) {
	u := m.pick(t, func(u *limitUser) bool { return u.joined })
	u.slots.Leave()
	u.joined, u.left, u.held, u.request = false, true, 0, nil
	if n, _ := u.slots.Take(dispatcher.SlotRequest{Least: 1, Most: 1}); n != 0 {
		t.Fatalf("got %d slots after Leave", n)
	}
}

// change lets a handler return, with any result.
func (m *limitModel) change(t *rapid.T) {
	said := rapid.SampledFrom([]verdict{coped, coped, coped, exhausted, timedOut, silent}).Draw(t, "result")
	m.limit.end(m.limit.begin(), &dispatcher.Delivery{ID: "m"}, said, errRefused)
}

// hold lets the limit hold back for a moment.
func (m *limitModel) hold(*rapid.T) {
	m.limit.mu.Lock()
	m.limit.beginHold(&dispatcher.Delivery{ID: "m"}, errRefused)
	m.limit.mu.Unlock()
	for _, u := range m.users {
		if u.joined && u.request != nil {
			m.takeWith(m.T, u, *u.request)
		}
	}
	m.limit.mu.Lock()
	m.limit.endHold()
	m.limit.mu.Unlock()
}

// drain notes what a limitUser was told.
func (m *limitModel) drain(u *limitUser) {
	select {
	case <-u.freed:
		u.told = true
	default:
	}
}

func (m *limitModel) check(t *rapid.T) {
	all, within := m.held()
	if st := m.limit.State(); st.Held != all || st.Running != 0 {
		t.Fatalf("the limit says that %d slots are held and %d handlers run, want %d and 0", st.Held, st.Running, all)
	}
	if st := m.shared.State(); st.Held != within {
		t.Fatalf("the pool says that %d slots are held, want %d", st.Held, within)
	}
	joined := 0
	for _, u := range m.users {
		if u.joined {
			joined++
		}
	}
	if n := len(m.limit.users); n != joined {
		t.Fatalf("the limit knows %d listeners, want %d", n, joined)
	}
	for _, u := range m.users {
		if m.drain(u); u.request == nil || u.told || u.kept > 0 {
			continue
		}
		held := u.held
		m.takeWith(t, u, *u.request)
		if u.held != held {
			t.Fatalf("a listener that waited got %d slots when it asked again, and was not told", u.held-held)
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

// within are slots that give out what a test says.
type within struct {
	dispatcher.Slots
	gives     int
	withdrawn int // calls of Withdraw
}

func (w *within) Join(chan<- struct{}) error                    { return nil }
func (w *within) Take(dispatcher.SlotRequest) (taken, free int) { return w.gives, w.gives }
func (w *within) Withdraw()                                     { w.withdrawn++ }
func (w *within) Free(int)                                      {}

// The slots around a limit are told once that nothing is asked of them any more, and only if they were asked in vain.
func TestOnlyARequestThatWaitsIsWithdrawn(t *testing.T) {
	one := dispatcher.SlotRequest{Least: 1, Most: 1}
	for gives, want := range []int{1, 0} {
		l, around := must(NewAdaptive(&AdaptiveOptions{Max: 1})), &within{gives: gives}
		s, other := l.Slots(around), l.Slots(nil)
		for _, joining := range []dispatcher.Slots{s, other} {
			if err := joining.Join(make(chan struct{}, 1)); err != nil {
				t.Fatal(err)
			}
		}
		s.Take(one) // takes the only slot, or waits for those around
		other.Take(one)
		s.Take(one)
		s.Take(one)
		if around.withdrawn != want {
			t.Errorf("slots that give %d were told %d times that nothing is asked, want %d", gives, around.withdrawn, want)
		}
	}
}

// A listener that asks no more keeps no slot from the others.
func TestWhoHasWithdrawnIsNotWaitedFor(t *testing.T) {
	l := must(NewAdaptive(&AdaptiveOptions{Max: 1}))
	var all [3]dispatcher.Slots
	for i := range all {
		all[i] = l.Slots(nil)
		if err := all[i].Join(make(chan struct{}, 1)); err != nil {
			t.Fatal(err)
		}
	}
	one := dispatcher.SlotRequest{Least: 1, Most: 1}
	for _, s := range all {
		s.Take(one)
	}
	all[1].Withdraw()
	all[0].Free(1)
	if taken, _ := all[2].Take(one); taken != 1 {
		t.Errorf("the last in line got %d slots after the one before it had withdrawn, want 1", taken)
	}
}

func TestInvalidAdaptiveOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]AdaptiveOptions{
		"bounds 9…5":             {Min: 9, Max: 5},
		"bounds -1…64":           {Min: -1},
		"Start 6 is outside 1…5": {Max: 5, Start: 6},
	} {
		if l, err := NewAdaptive(&o); l != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

func TestSlotsReportWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		within dispatcher.Slots
		want   string
	}{
		"nil pointer":   {(*Member)(nil), "nil *slots.Member"},
		"faulty member": {must(NewShared(nil)).Member(&MemberOptions{Weight: -1}), "weight -1"},
	} {
		s := must(NewAdaptive(nil)).Slots(c.within)
		if _, err := s.Size(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Size: got error %v, want one with %q", name, err, c.want)
		}
		if err := s.Join(make(chan struct{}, 1)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Join: got error %v, want one with %q", name, err, c.want)
		}
	}
}

// The size is that of the highest limit, or of what is around it: it is the default of Concurrency.
func TestTheSizeIsTheHighestLimit(t *testing.T) {
	l := must(NewAdaptive(&AdaptiveOptions{Max: 40, Start: 3}))
	if size, err := l.Slots(nil).Size(); size != 40 || err != nil {
		t.Errorf("got size %d and error %v, want 40", size, err)
	}
	p := must(NewShared(&SharedOptions{Slots: 25}))
	if size, err := l.Slots(p.Member(nil)).Size(); size != 25 || err != nil {
		t.Errorf("in a pool of 25: got size %d and error %v, want 25", size, err)
	}
}

// While the dependency is exhausted at the lowest limit nothing starts, for ever longer; a success ends that.
func TestAtTheLowestLimitNothingStartsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		l := must(NewAdaptive(&AdaptiveOptions{Max: 8}))
		begin := time.Now()
		var calls, answered atomic.Int64
		work(ctx, t, l.Slots(nil), 8, l.Intercept, func(context.Context, int) error {
			if time.Since(begin) < 20*time.Minute {
				calls.Add(1)
				return errRefused
			}
			answered.Add(1)
			time.Sleep(time.Second)
			return nil
		})
		if calls := calls.Load(); calls < 20*60/16 || calls > 20*60/14+60 {
			t.Errorf("calls in 20 minutes in which all are refused: got %d, want about one in 15 s", calls)
		}
		if possible := int64(8 * 10 * 60); answered.Load() < possible*9/10 {
			t.Errorf("calls answered in the 10 minutes after: got %d, want at least 90 %% of %d", answered.Load(), possible)
		}
	})
}

// The holds grow from failure to failure, and begin anew after a success.
func TestASuccessShortensTheNextHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(NewAdaptive(&AdaptiveOptions{Max: 1}))
		end := func(said verdict) time.Duration {
			l.end(l.begin(), &dispatcher.Delivery{ID: "m"}, said, errRefused)
			return l.last.wait
		}
		first, second, third := end(exhausted), end(exhausted), end(exhausted)
		end(coped)
		if again := end(exhausted); first > 2*firstHold || second <= first || third <= second || again > 2*firstHold {
			t.Errorf("got holds of %v, %v, %v, and %v after a success", first, second, third, again)
		}
	})
}

// A listener that begins while the limit holds back begins when that ends.
func TestAHoldOutlivesItsListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(NewAdaptive(&AdaptiveOptions{Max: 1}))
		one, other := l.Slots(nil), l.Slots(nil)
		freed := make(chan struct{}, 1)
		if err := one.Join(freed); err != nil {
			t.Fatal(err)
		}
		l.end(l.begin(), &dispatcher.Delivery{ID: "m"}, exhausted, errRefused)
		one.Leave()
		time.Sleep(100 * time.Millisecond)
		if err := other.Join(freed); err != nil {
			t.Fatal(err)
		}
		defer other.Leave()
		r := dispatcher.SlotRequest{Least: 1, Most: 1}
		if n, _ := other.Take(r); n != 0 {
			t.Fatalf("got %d slots while the limit holds back", n)
		}
		<-freed // a deadlock of the bubble if nobody tells
		if n, _ := other.Take(r); n != 1 {
			t.Errorf("got %d slots after the hold, want 1", n)
		}
	})
}

// What is worth a dequeue to a listener with the highest limit may be more than there is: at a low limit less is.
func TestALowLimitIsWorthADequeue(t *testing.T) {
	s := must(NewAdaptive(&AdaptiveOptions{Max: 64, Start: 4})).Slots(nil)
	if err := s.Join(make(chan struct{}, 1)); err != nil {
		t.Fatal(err)
	}
	defer s.Leave()
	r := dispatcher.SlotRequest{Least: 6, Most: 32}
	if n, _ := s.Take(r); n != 4 {
		t.Errorf("got %d slots, want all 4", n)
	}
	s.Free(2)
	if n, _ := s.Take(r); n != 2 {
		t.Errorf("with 2 of 4 free: got %d slots, want 2", n)
	}
}
