package localqueue

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/queue"
)

// Account is one account of an [Engine]: a [queue.Account]. It is safe for concurrent use.
// [Engine.Account] returns one.
type Account struct {
	engine *Engine
	name   string
}

var _ queue.Account = (*Account)(nil)

// Account returns the account of that name. It need not be created.
func (e *Engine) Account(name string) *Account { return &Account{e, name} }

// Name returns the account's name.
func (a *Account) Name() string { return a.name }

// Open returns the queue of that name, whether or not it exists. Unlike [Engine.Queue], it
// fails if the service would refuse the name.
func (a *Account) Open(name string) (queue.Manager, error) {
	q := a.engine.Queue(queue.Name{Account: a.name, Queue: name})
	if q.refused != nil {
		return nil, q.fail("open", "", q.refused)
	}
	return q, nil
}

// List implements [queue.Account]. A marker is the name of the first queue of the page. The
// cost is O(log n) plus the size of the page.
func (a *Account) List(ctx context.Context, o *queue.ListOptions) (queue.Page, error) {
	page, err := a.list(ctx, o)
	if err != nil {
		return queue.Page{}, queue.Explain(err, "list", queue.Name{Account: a.name}, "")
	}
	return page, nil
}

func (a *Account) list(ctx context.Context, o *queue.ListOptions) (queue.Page, error) {
	if err := ready(ctx, queue.CheckList(o)); err != nil {
		return queue.Page{}, err
	}
	if o == nil {
		o = &queue.ListOptions{}
	}
	if err := a.engine.enter(noSpace); err != nil {
		return queue.Page{}, err
	}
	page, seen := a.engine.page(a.name, o)
	a.engine.leave()
	return page, seen.wait(ctx)
}

// page also returns the newest change that it shows.
func (e *Engine) page(accountName string, o *queue.ListOptions) (queue.Page, *ticket) {
	a := e.account(accountName, false)
	if a == nil {
		return queue.Page{}, nil
	}
	page, found, seen := a.page(o)
	// Metadata is read after the account's lock is released, because a list of thousands must
	// not block every other call of the account. A queue dropped in between is still listed,
	// as if it had been dropped a moment later.
	for i, s := range found {
		s.mu.Lock()
		page.Queues[i].Metadata = maps.Clone(s.metadata)
		seen = newer(seen, s.pending)
		s.mu.Unlock()
	}
	return page, seen
}

func (a *accountState) page(o *queue.ListOptions) (queue.Page, []*queueState, *ticket) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	start, _ := slices.BinarySearch(a.names, max(o.Prefix, o.Marker))
	var page queue.Page
	var found []*queueState
	for _, name := range a.names[start:] {
		if !strings.HasPrefix(name, o.Prefix) {
			break
		}
		if len(found) == o.Size() {
			page.Next = name
			break
		}
		page.Queues = append(page.Queues, queue.Listed{Name: name})
		found = append(found, a.queues[name])
	}
	return page, found, a.pending
}
