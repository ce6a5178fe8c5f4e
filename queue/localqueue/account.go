package localqueue

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/queue"
)

// Account is the queues of one account of an [Engine]: a [queue.Account]. It is safe for
// concurrent use. Make one with [Engine.Account].
type Account struct {
	engine *Engine
	name   string
}

var _ queue.Account = (*Account)(nil)

// Account returns the queues of the account of that name. It needs no making.
func (e *Engine) Account(name string) *Account { return &Account{e, name} }

// Name is the account's name.
func (a *Account) Name() string { return a.name }

// Open returns the queue of that name, whether or not it exists yet. Unlike
// [Engine.Queue] it refuses a name that the service would not take.
func (a *Account) Open(name string) (queue.Manager, error) {
	q := a.engine.Queue(queue.Name{Account: a.name, Queue: name})
	if q.refused != nil {
		return nil, q.fail("open", "", q.refused)
	}
	return q, nil
}

// List implements [queue.Account]. A marker is the name of the queue that the page begins
// with. The cost is O(log n) and the size of the page.
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

// page also returns the newest change of what it shows.
func (e *Engine) page(accountName string, o *queue.ListOptions) (queue.Page, *ticket) {
	a := e.account(accountName, false)
	if a == nil {
		return queue.Page{}, nil
	}
	page, found, seen := a.page(o)
	// Metadata comes after the account is let go: a list of thousands must not
	// keep every other call of the account waiting. A queue dropped in between
	// is listed still, as if the drop had come a moment later.
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
