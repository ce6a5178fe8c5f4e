package localqueue

import (
	"slices"
	"sync"
)

// accountState holds the queues of one account. Its lock is taken before that of a queue,
// never after it, and only for map operations.
type accountState struct {
	mu            sync.RWMutex
	queues        map[string]*queueState // guarded by mu
	names         []string               // guarded by mu; the keys of queues, sorted for lists
	deleting      map[string]instant     // guarded by mu; dropped names and when they become free
	deletingOrder []string               // guarded by mu; the keys of deleting, soonest free first

	properties []byte  // guarded by mu; replaced, never changed
	pending    *ticket // guarded by mu; the newest change of the above
}

// account returns the account of that name. If there is none, it creates it, or returns nil
// if create is false.
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

// insert adds a queue whose name is free. The caller holds mu.
func (a *accountState) insert(s *queueState) {
	a.queues[s.name.Queue] = s
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Insert(a.names, i, s.name.Queue)
}

// remove removes an existing queue. The caller holds mu.
func (a *accountState) remove(s *queueState) {
	delete(a.queues, s.name.Queue)
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Delete(a.names, i, i+1)
}

// markDeleting reserves the name of a dropped queue until it becomes free. The period is
// the same throughout an engine, so its place is nearly always the end. The caller holds
// mu.
func (a *accountState) markDeleting(name string, free instant) {
	i := len(a.deletingOrder)
	for i > 0 && a.deleting[a.deletingOrder[i-1]] > free {
		i--
	}
	a.deletingOrder = slices.Insert(a.deletingOrder, i, name)
	a.deleting[name] = free
}

// releaseNames removes the names that have become free. The caller holds mu.
func (a *accountState) releaseNames(at instant) {
	free := 0
	for free < len(a.deletingOrder) && a.deleting[a.deletingOrder[free]] <= at {
		delete(a.deleting, a.deletingOrder[free])
		free++
	}
	a.deletingOrder = slices.Delete(a.deletingOrder, 0, free)
}
