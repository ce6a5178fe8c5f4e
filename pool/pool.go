package pool

import (
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
)

// Options configure a [Pool]. Nil and the zero value mean the defaults.
type Options struct {
	// Slots is how many handlers of all members may run at once. Defaults to 64.
	Slots int

	// Strict gives free slots to the lowest rank that waits; weights decide only among equal ranks.
	// Defaults to false: weights decide, and nobody starves.
	Strict bool
}

// Pool is a set of slots that its members share. Make one with [New]. It is safe for concurrent use.
type Pool struct {
	strict bool
	err    error // what is wrong with the options

	mu       sync.Mutex
	slots    int         // guarded by mu
	used     int         // held by members; guarded by mu
	reserved int         // reserves of all members; guarded by mu
	idle     int         // of these, not in use: nobody else may take them; guarded by mu
	weights  int         // of all members; guarded by mu
	members  []*Member   // made, and not left; guarded by mu
	asking   []*Member   // that wait or will soon ask again, in the order in which they began to; guarded by mu
	timer    *time.Timer // calls forget; nil before its first use; guarded by mu
	armed    bool        // the timer runs; guarded by mu
	made     int         // members so far; guarded by mu
	hungry   int         // members that want more than they get; guarded by mu
	passed   time.Time   // until when leads are known; zero if none count; guarded by mu
}

// New returns a pool without members. Run of a listener reports invalid options.
func New(o *Options) *Pool {
	var c Options
	if o != nil {
		c = *o
	}
	p := &Pool{strict: c.Strict, slots: c.Slots}
	if c.Slots < 0 {
		p.err = fmt.Errorf("pool of %d slots: there must be at least 1", c.Slots)
	}
	if c.Slots <= 0 {
		p.slots = dispatcher.DefaultConcurrency
	}
	return p
}

// Resize changes the number of slots. Handlers beyond a lower number finish. A listener that has no
// Concurrency of its own keeps the number of slots that there were when it began as its bound. It is an
// error, and nothing changes, if the members could not have the slots that they reserve, or one each.
func (p *Pool) Resize(slots int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slots < 1 {
		return fmt.Errorf("resize a pool to %d slots: there must be at least 1", slots)
	}
	if err := fit(slots, len(p.members), p.reserved); err != nil {
		return fmt.Errorf("resize a pool from %d slots: %w", p.slots, err)
	}
	p.slots = slots
	p.wake()
	return nil
}

// fit returns an error if so many members with these reserves cannot share the slots.
func fit(slots, members, reserved int) error {
	if reserved > slots {
		return fmt.Errorf("the members of a pool of %d slots would reserve %d in all: lower their reserves, or give the pool more slots", slots, reserved)
	}
	if members > slots {
		return fmt.Errorf("a pool of %d slots would have %d members, and each needs one: give the pool more slots", slots, members)
	}
	return nil
}

// State describes a pool at one moment.
type State struct {
	Slots   int           // of all members
	Held    int           // in use; more than Slots for a while after a Resize to fewer
	Members []MemberState // in the order in which they were made, without those that have left
}

// MemberState describes a member of a pool.
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
func (p *Pool) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := State{Slots: p.slots, Held: p.used, Members: make([]MemberState, 0, len(p.members))}
	for _, m := range p.members {
		st.Members = append(st.Members, MemberState{
			Name: m.name, Weight: m.weight, Reserve: m.reserve, Rank: m.rank,
			Running: m.freed != nil, Waiting: m.waits, Held: m.held,
		})
	}
	return st
}
