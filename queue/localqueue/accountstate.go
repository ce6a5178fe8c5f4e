package localqueue

import (
	"slices"
	"sync"
)

// account is the queues of one account. Its lock is taken before that of a
// queue, never after it, and is held for map operations only.
type accountState struct {
	mu            sync.RWMutex
	queues        map[string]*queueState // guarded by mu
	names         []string               // guarded by mu; the keys of queues in order, for lists
	deleting      map[string]instant     // guarded by mu; dropped names and when they are free
	deletingOrder []string               // guarded by mu; the keys of leaving, soonest free first

	properties []byte  // guarded by mu; replaced, never changed
	pending    *ticket // guarded by mu; the newest change of the above
}

// account returns the account of that name, or nil when there is none and none
// is to be made.
func (e *Engine) account(name string, create bool) *accountState {
	e.mu.RLock()
	a := e.accounts[name]
	e.mu.RUnlock()
	if a != nil || !create {
		return a
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a = e.accounts[name]; a == nil {
		a = &accountState{queues: map[string]*queueState{}, deleting: map[string]instant{}}
		e.accounts[name] = a
	}
	return a
}

// restore undoes a drop.
func (a *accountState) restore(s *queueState, left backlog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.insert(s)
	delete(a.deleting, s.name.Queue)
	a.deletingOrder = slices.DeleteFunc(a.deletingOrder, func(name string) bool { return name == s.name.Queue })
	a.pending = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped, s.backlog, s.pending = false, left, nil
}

// insert adds a queue whose name is not there. The caller holds mu.
func (a *accountState) insert(s *queueState) {
	a.queues[s.name.Queue] = s
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Insert(a.names, i, s.name.Queue)
}

// remove takes a queue away that is there. The caller holds mu.
func (a *accountState) remove(s *queueState) {
	delete(a.queues, s.name.Queue)
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Delete(a.names, i, i+1)
}

// takeLeave keeps a name taken until it is free. The period is the same for all
// of an engine, so its place is nearly always the end. The caller holds mu.
func (a *accountState) markDeleting(name string, free instant) {
	i := len(a.deletingOrder)
	for i > 0 && a.deleting[a.deletingOrder[i-1]] > free {
		i--
	}
	a.deletingOrder = slices.Insert(a.deletingOrder, i, name)
	a.deleting[name] = free
}

// release forgets the names that are free by now. The caller holds mu.
func (a *accountState) releaseNames(at instant) {
	free := 0
	for free < len(a.deletingOrder) && a.deleting[a.deletingOrder[free]] <= at {
		delete(a.deleting, a.deletingOrder[free])
		free++
	}
	a.deletingOrder = slices.Delete(a.deletingOrder, 0, free)
}
