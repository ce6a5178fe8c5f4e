package slots

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// SharedOptions configure a [Shared]. Nil and the zero value mean the defaults.
type SharedOptions struct {
	// Slots is how many handlers of all members may run at once. Defaults to 64.
	Slots int
}

// Shared is a set of slots that its members share. Make it with [NewShared]. It is safe for concurrent use.
type Shared struct {
	mu       sync.Mutex
	slots    int         // guarded by mu
	used     int         // held by members; guarded by mu
	reserved int         // reserves of all members; guarded by mu
	idle     int         // of these, not in use: nobody else may take them; guarded by mu
	weights  int         // of all members; guarded by mu
	members  []*Member   // made, and not left; guarded by mu
	tiers    []*tier     // of all ranks so far; guarded by mu
	asking   []*Member   // that wait or will soon ask again, in the order in which they began to; guarded by mu
	timer    *time.Timer // calls forget; nil before its first use; guarded by mu
	due      time.Time   // when the timer runs out; zero if it does not run; guarded by mu
	made     int         // members so far; guarded by mu
	passed   time.Time   // until when leads are known; guarded by mu
}

// NewShared returns slots without members. It returns an error if the options ask for fewer than 1 slot.
func NewShared(o *SharedOptions) (*Shared, error) {
	c := *cmp.Or(o, &SharedOptions{})
	if c.Slots < 0 {
		return nil, fmt.Errorf("share %d slots: there must be at least 1", c.Slots)
	}
	return &Shared{slots: cmp.Or(c.Slots, dispatcher.DefaultConcurrency)}, nil
}

// Resize changes the number of slots. Handlers beyond a lower number finish. A listener that has no
// Concurrency of its own keeps the number of slots that there were when it began as its bound. It is an
// error, and nothing changes, if the members could not have the slots that they reserve, or if those
// without a reserve would have none.
func (p *Shared) Resize(slots int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slots < 1 {
		return fmt.Errorf("resize shared slots to %d: there must be at least 1", slots)
	}
	open := slices.ContainsFunc(p.members, func(m *Member) bool { return m.reserve == 0 })
	if err := fit(slots, p.reserved, open); err != nil {
		return fmt.Errorf("resize shared slots from %d: %w", p.slots, err)
	}
	p.passTime()
	p.slots = slots
	p.wake()
	return nil
}

// fit returns an error if members cannot reserve so many of the slots. Open tells that some have no reserve.
func fit(slots, reserved int, open bool) error {
	switch {
	case reserved > slots:
		return fmt.Errorf("the members of %d shared slots would reserve %d in all: lower their reserves, or share more slots", slots, reserved)
	case reserved == slots && open:
		return fmt.Errorf("the members would reserve all %d shared slots and leave nothing to those without a reserve: lower a reserve, or share more slots", slots)
	}
	return nil
}

// SharedState describes shared slots at one moment.
type SharedState struct {
	Slots   int           // of all members
	Held    int           // in use; more than Slots for a while after a Resize to fewer
	Members []MemberState // in the order in which they were made, without those that have left
}

// MemberState describes a member of shared slots.
type MemberState struct {
	Name    string
	Weight  int
	Reserve int
	Rank    int
	Running bool // its listener runs
	Waiting bool // its listener waits for slots
	Held    int  // slots in use: its handlers that run, and what is reserved for its dequeues
}

// State returns what the members hold.
func (p *Shared) State() SharedState {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := SharedState{Slots: p.slots, Held: p.used, Members: make([]MemberState, 0, len(p.members))}
	for _, m := range p.members {
		st.Members = append(st.Members, MemberState{
			Name: m.name, Weight: m.weight, Reserve: m.reserve, Rank: m.rank,
			Running: m.freed != nil, Waiting: m.waits, Held: m.held,
		})
	}
	return st
}

// MemberOptions configure a [Member]. Nil and the zero value mean the defaults.
type MemberOptions struct {
	// Name is what errors and State call the member. Defaults to "member" and a number.
	Name string

	// Weight is the member's part of the slots while several want more than there is. Defaults to 1.
	Weight int

	// Reserve is how many slots no other member takes, also while they are unused. Defaults to none.
	Reserve int

	// Rank outweighs every weight: free slots go to the lowest rank that waits, and weights decide among
	// members of one rank. The slots that a later rank has in any case are its Reserve. Defaults to 0, the
	// same for all: then weights decide, and no member starves.
	Rank int
}

// Member is a listener's part in [Shared] slots, for the option Slots of one listener at a time. The methods are
// for that listener, and safe for concurrent use.
type Member struct {
	_ [0]sync.Mutex // go vet reports copies

	shared                *Shared
	name                  string
	weight, reserve, rank int
	err                   error // why it cannot be used

	// Guarded by shared.mu.
	in      bool // one of shared.members
	held    int
	freed   chan<- struct{} // of the listener; nil while none runs
	tier    *tier           // of its rank
	asks    bool            // one of shared.asking
	waits   bool            // asks, and has got nothing yet
	soon    time.Time       // until when it is expected to ask again, if it does not wait and wants more
	busy    time.Time       // until when lower ranks leave it what it can use, if it does not wait; zero for never
	told    bool            // knows that some slots are kept for it
	hungry  bool            // wants more than it gets
	fed     time.Time       // when it last ceased to be hungry
	lead    float64         // slots × seconds that it has held beyond its share while hungry
	share   float64         // of the slots that hungry members hold
	request dispatcher.SlotRequest
	allotment
}

// allotment is what allot works out for a member that waits.
type allotment struct {
	most    int     // what it would take
	least   int     // what is worth a dequeue
	granted int     // what it would get
	own     int     // how many of these are of its reserve
	block   int     // what it must get next of the slots for all, to get any
	kept    int     // slots that are kept for it until they are enough
	first   bool    // it holds nothing, and there are enough slots for all
	middle  float64 // of what it holds and would get, for its weight
}

var _ dispatcher.Slots = (*Member)(nil)

// Member returns a new member. Its reserve holds from now on until its listener has run and ended. Run of the
// listener reports options that are invalid, or for which there are too few slots.
func (p *Shared) Member(o *MemberOptions) *Member {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := *cmp.Or(o, &MemberOptions{})
	c.Weight = cmp.Or(c.Weight, 1)
	p.made++
	c.Name = cmp.Or(c.Name, fmt.Sprintf("member %d", p.made))
	m := &Member{shared: p, name: c.Name, weight: c.Weight, reserve: c.Reserve, rank: c.Rank}
	if m.err = m.check(); m.err == nil {
		m.err = m.enter()
	}
	return m
}

func (m *Member) check() error {
	var errs []error
	refuse := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("member %q of shared slots: "+format, append([]any{m.name}, args...)...))
	}
	if m.weight < 0 || m.weight > maxWeight {
		refuse("weight %d is outside 1…%d", m.weight, maxWeight)
	}
	if m.reserve < 0 {
		refuse("reserve %d must not be negative", m.reserve)
	}
	return errors.Join(errs...)
}

// maxWeight bounds the weights, so that their products with slots cannot overflow.
const maxWeight = 1_000_000

// enter makes m one of the members. Requires shared.mu.
func (m *Member) enter() error {
	p := m.shared
	open := m.reserve == 0 || slices.ContainsFunc(p.members, func(one *Member) bool { return one.reserve == 0 })
	if err := fit(p.slots, p.reserved+m.reserve, open); err != nil {
		return fmt.Errorf("member %q of shared slots: %w", m.name, err)
	}
	m.in, m.tier = true, p.tierOf(m.rank)
	p.members = append(p.members, m)
	p.reserved += m.reserve
	p.idle += m.reserve
	p.weights += m.weight
	p.wake() // what is worth a dequeue depends on the members
	return nil
}

// Size implements [dispatcher.Slots].
func (m *Member) Size() (int, error) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	return m.shared.slots, m.err
}

// Join implements [dispatcher.Slots].
func (m *Member) Join(freed chan<- struct{}) error {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	if m.err != nil {
		return m.err
	}
	if m.freed != nil {
		return fmt.Errorf("member %q of shared slots is in use by a listener that runs: make a member for each listener", m.name)
	}
	if !m.in {
		if err := m.enter(); err != nil {
			return err
		}
	}
	m.freed = freed
	return nil
}

// Leave implements [dispatcher.Slots].
func (m *Member) Leave() {
	p := m.shared
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.freed == nil {
		return
	}
	p.passTime()
	m.hold(-m.held)
	m.stopAsking()
	m.setHungry(false)
	m.busy = time.Time{}
	m.freed, m.in = nil, false
	p.members = slices.DeleteFunc(p.members, func(one *Member) bool { return one == m })
	p.reserved -= m.reserve
	p.idle -= m.reserve
	p.weights -= m.weight
	p.wake()
}

// Take implements [dispatcher.Slots].
func (m *Member) Take(r dispatcher.SlotRequest) (taken, free int) {
	p := m.shared
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.freed == nil {
		return 0, 0
	}
	p.passTime()
	m.request = r
	waited := m.waits
	m.ask()
	m.setBusy(r.Backlog)
	p.allot()
	if !m.served() {
		m.setHungry(r.Likely > 0)
		p.arm()
		free = m.gathered()
		m.told = free > 0
		p.wake() // others may be before it now, and with one more that waits fewer slots are worth a dequeue
		return 0, free
	}
	taken = m.granted
	if !waited {
		m.setHungry(taken < min(r.Most, r.Likely))
	}
	m.expect(taken)
	m.hold(taken)
	p.wake() // what it leaves may be enough for others, or a reason for them to linger
	p.arm()
	return taken, taken
}

// Withdraw implements [dispatcher.Slots].
func (m *Member) Withdraw() {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	m.shared.passTime()
	m.stopAsking()
	m.setHungry(false)
	m.busy = time.Time{}
	m.shared.wake()
}

// Free implements [dispatcher.Slots].
func (m *Member) Free(n int) {
	m.shared.mu.Lock()
	defer m.shared.mu.Unlock()
	if n > m.held {
		panic(fmt.Sprintf("member %q of shared slots: %d slots are returned, and it holds %d", m.name, n, m.held))
	}
	m.shared.passTime()
	m.hold(-n)
	m.shared.wake()
}

// hold changes how many slots m holds. Requires shared.mu.
func (m *Member) hold(n int) {
	m.shared.idle -= m.unused()
	m.held += n
	m.shared.used += n
	m.shared.idle += m.unused()
}

// unused returns how many slots of the reserve are not in use. Requires shared.mu.
func (m *Member) unused() int { return max(m.reserve-m.held, 0) }

// speculativePart is the part of its share that a member with an empty queue may hold during a dequeue.
const speculativePart = 8

// speculation returns how many slots m may take for one dequeue, at least 1, given what it knows of its
// queue. What it takes and does not need is lost to others while the dequeue lasts, which is long when
// the service is slow. A member that is alone, or has reserved slots, may take those. Requires shared.mu.
func (m *Member) speculation() int {
	p, r := m.shared, &m.request
	if len(p.members) == 1 {
		return r.Most
	}
	share := p.slots * m.weight / p.weights
	return max(max(r.Likely, share/speculativePart)-r.Unanswered, m.unused(), 1)
}
