package localqueue

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// accountHandle is one account of an [Engine].
type accountHandle struct {
	engine *Engine
	name   string
}

var _ localengine.Account = (*accountHandle)(nil)

// Account returns the account of that name. It need not be created. Unlike [Engine.Queue], its Open
// fails if the service would refuse the name. A page of its List costs O(log n) and its size.
func (e *Engine) Account(name string) queue.Account { return &accountHandle{engine: e, name: name} }

// Name returns the account's name.
func (a *accountHandle) Name() string { return a.name }

// Open implements [queue.Account].
func (a *accountHandle) Open(name string) (queue.Manager, error) {
	q := a.engine.queue(queue.Name{Account: a.name, Queue: name})
	if q.refused != nil {
		return nil, q.fail("open", "", q.refused)
	}
	return q, nil
}

// List implements [queue.Account]. A marker is the name of the first queue of the page. The
// cost is O(log n) plus the size of the page.
func (a *accountHandle) List(ctx context.Context, prefix, marker string, limit int) (page []queue.Listed, next string, err error) {
	bad := driver.CheckList(limit)
	err = a.engine.call(ctx, "list", queue.Name{Account: a.name}, noSpace, bad, func() (seen *ticket, _ error) {
		page, next, seen = a.engine.page(a.name, prefix, marker, cmp.Or(limit, driver.MaxPage))
		return seen, nil
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// page also returns the newest change that it shows.
func (e *Engine) page(accountName, prefix, marker string, limit int) (page []queue.Listed, next string, seen *ticket) {
	a := e.account(accountName, false)
	if a == nil {
		return nil, "", nil
	}
	found, next, seen := a.page(prefix, marker, limit)
	// Metadata is read after the account's lock is released, because a list of thousands must
	// not block every other call of the account. A queue dropped in between is still listed,
	// as if it had been dropped a moment later.
	page = make([]queue.Listed, len(found))
	for i, s := range found {
		s.mu.Lock()
		page[i] = queue.Listed{Name: s.name.Queue, Metadata: maps.Clone(s.metadata)}
		seen = newer(seen, s.pending)
		s.mu.Unlock()
	}
	return page, next, seen
}

func (a *accountState) page(prefix, marker string, limit int) (found []*queueState, next string, seen *ticket) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	start, _ := slices.BinarySearch(a.names, max(prefix, marker))
	for _, name := range a.names[start:] {
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(found) == limit {
			next = name
			break
		}
		found = append(found, a.queues[name])
	}
	return found, next, a.pending
}

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

// maxSettings is the limit, in bytes, of an access policy or an account's service
// properties: some 30 times what the service's maximum of five policies or five CORS rules
// takes.
const maxSettings = 64 << 10

// AccessPolicy implements [localengine.Queue].
func (q *handle) AccessPolicy(ctx context.Context) ([]byte, error) {
	const op = "get access policy"
	s, _, err := q.begin(ctx, noSpace, nil)
	if err != nil {
		return nil, q.fail(op, "", err)
	}
	policy := bytes.Clone(s.policy)
	if err := q.end(s).wait(ctx); err != nil {
		return nil, q.fail(op, "", err)
	}
	return policy, nil
}

// SetAccessPolicy implements [localengine.Queue].
func (q *handle) SetAccessPolicy(ctx context.Context, policy []byte) error {
	const op = "set access policy"
	s, _, err := q.begin(ctx, needsSpace, checkSettings(policy))
	if err != nil {
		return q.fail(op, "", err)
	}
	old := s.policy
	s.policy = cloneSettings(policy)
	q.recordState(s, func() { s.policy = old })
	return q.fail(op, "", q.end(s).wait(ctx))
}

// ServiceProperties implements [localengine.Account].
func (a *accountHandle) ServiceProperties(ctx context.Context) (properties []byte, err error) {
	err = a.engine.call(ctx, "get service properties", queue.Name{Account: a.name}, noSpace, nil, func() (seen *ticket, _ error) {
		properties, seen = a.engine.account(a.name, false).settings()
		return seen, nil
	})
	if err != nil {
		return nil, err
	}
	return properties, nil
}

// settings also returns the newest change that it shows. It is safe on nil.
func (a *accountState) settings() ([]byte, *ticket) {
	if a == nil {
		return nil, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return bytes.Clone(a.properties), a.pending
}

// SetServiceProperties implements [localengine.Account].
func (a *accountHandle) SetServiceProperties(ctx context.Context, properties []byte) error {
	bad := checkSettings(properties)
	return a.engine.call(ctx, "set service properties", queue.Name{Account: a.name}, needsSpace, bad, func() (*ticket, error) {
		return a.engine.set(a.engine.account(a.name, true), a.name, cloneSettings(properties)), nil
	})
}

func (e *Engine) set(a *accountState, name string, properties []byte) *ticket {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.properties
	a.properties = properties
	if e.committer != nil {
		a.pending = e.committer.add(localengine.AccountSaved{Name: name, Properties: properties}, func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.properties, a.pending = old, nil
		})
	}
	return a.pending
}

func checkSettings(b []byte) error {
	if len(b) <= maxSettings {
		return nil
	}
	return &queue.Error{Kind: queue.ErrTooLarge, Detail: fmt.Sprintf("settings have %d bytes, the limit is %d", len(b), maxSettings)}
}

// cloneSettings returns a copy of b, nil if it is empty.
func cloneSettings(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return bytes.Clone(b)
}
