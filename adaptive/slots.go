package adaptive

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/pool"
)

// Slots returns slots for the option Slots of one listener. It runs as many handlers as the limit allows, together with the
// other listeners that use the limit: what there is goes to them in equal parts while several want more. Each of
// them has one slot at least, so with more listeners than the limit their number is the limit.
//
// Within are slots that the listener's handlers take too, such as a member of a pool: then both bound them. Nil means
// none. The limit then takes the place of that member: only the result is passed to a listener.
func (l *Limit) Slots(within dispatcher.Slots) dispatcher.Slots {
	s := &slots{limit: l, within: within}
	if within != nil && hook.IsNil(within) {
		s.err = fmt.Errorf("adaptive limit: the slots around it are a nil %T: pass nil for none", within)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places++
	l.resize()
	s.entered = true
	s.own = l.pool.Member(nil)
	return s
}

type slots struct {
	limit  *Limit
	own    *pool.Member
	within dispatcher.Slots // nil for none
	err    error

	mu      sync.Mutex      // held during calls of own and within, so that what is taken of both is one
	entered bool            // it is counted in limit.places; guarded by limit.mu
	freed   chan<- struct{} // nil while no listener runs; guarded by mu and limit.mu
	asking  bool            // within knows that the listener waits; guarded by mu
}

var _ dispatcher.Slots = (*slots)(nil)

// Size implements [dispatcher.Slots]: it is the highest limit.
func (s *slots) Size() (int, error) {
	_, err := s.own.Size()
	err = errors.Join(s.limit.err, s.err, err)
	size := s.limit.options.Max
	if s.within != nil && s.err == nil {
		most, werr := s.within.Size()
		size, err = min(size, most), errors.Join(err, werr)
	}
	return size, err
}

// Join implements [dispatcher.Slots].
func (s *slots) Join(freed chan<- struct{}) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.limit.err, s.err); err != nil {
		return err
	}
	if s.freed != nil {
		return errors.New("these slots of an adaptive limit are in use by a listener that runs: call Slots for each listener")
	}
	s.limit.enter(s)
	if err := s.own.Join(freed); err != nil {
		s.limit.exit(s)
		return err
	}
	if s.within != nil {
		if err := s.within.Join(freed); err != nil {
			s.own.Leave()
			s.limit.exit(s)
			return err
		}
	}
	s.limit.use(s, freed)
	return nil
}

// Leave implements [dispatcher.Slots].
func (s *slots) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return
	}
	s.own.Leave()
	if s.within != nil {
		s.within.Leave()
	}
	s.asking = false
	s.limit.exit(s)
}

// Take implements [dispatcher.Slots].
func (s *slots) Take(r dispatcher.SlotRequest) (taken, free int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return 0, 0
	}
	if s.limit.isHeld() {
		s.withdraw()
		return 0, 0
	}
	r.Least = s.limit.worth(r.Least)
	taken, free = s.own.Take(r)
	if taken == 0 || s.within == nil {
		s.withdrawWithin()
		return taken, free
	}
	r.Most, r.Least = taken, min(r.Least, taken)
	got, free := s.within.Take(r)
	s.asking = got == 0
	if got < taken {
		s.own.Free(taken - got)
	}
	if got == 0 {
		s.own.Withdraw() // others that have room elsewhere may have them
	}
	return got, free
}

// Withdraw implements [dispatcher.Slots].
func (s *slots) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed != nil {
		s.withdraw()
	}
}

// withdraw says that nothing is asked for. Requires mu.
func (s *slots) withdraw() {
	s.own.Withdraw()
	if s.within != nil {
		s.asking = false
		s.within.Withdraw()
	}
}

// withdrawWithin lets the other slots go to others, if they were kept for a request that now waits for the limit. Requires
// mu.
func (s *slots) withdrawWithin() {
	if s.asking {
		s.asking = false
		s.within.Withdraw()
	}
}

// Free implements [dispatcher.Slots].
func (s *slots) Free(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.freed == nil {
		return
	}
	s.own.Free(n)
	if s.within != nil {
		s.within.Free(n)
	}
}

// worth returns how many slots are worth a dequeue: what is a tenth of the highest limit may be more than there are.
func (l *Limit) worth(least int) int { return max(least*l.limit()/l.options.Max, 1) }

// enter counts the slots among those that need a place.
func (l *Limit) enter(s *slots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.entered {
		s.entered = true
		l.places++
		l.resize()
	}
}

// use notes that a listener uses the slots. It holds the mu of s.
func (l *Limit) use(s *slots, freed chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.freed = freed
	l.users = append(l.users, s)
	if l.isHeld() { // the timer may have been stopped when the last one left
		l.hold.timer.Reset(time.Duration(l.heldUntil.Load()) - time.Since(l.made))
	}
}

// exit notes that the slots need no place any more. It holds the mu of s.
func (l *Limit) exit(s *slots) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.freed = nil
	if s.entered {
		s.entered = false
		l.places--
		l.resize()
	}
	l.users = slices.DeleteFunc(l.users, func(one *slots) bool { return one == s })
	if len(l.users) == 0 && l.hold.timer != nil {
		l.hold.timer.Stop()
	}
}

// wakeUsers lets all listeners ask again, after the limit has held back.
func (l *Limit) wakeUsers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellUsers()
}

// tellUsers is wakeUsers with mu held.
func (l *Limit) tellUsers() {
	for _, s := range l.users {
		waiting.Signal(s.freed, struct{}{})
	}
}
