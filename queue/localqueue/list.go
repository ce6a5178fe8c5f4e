package localqueue

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/queue"
)

// ListOptions say which queues of an account to list. Nil and the zero value
// mean all of them, up to the largest page.
type ListOptions struct {
	// Prefix restricts the list to names that begin with it. Defaults to "",
	// all names.
	Prefix string

	// From leaves out names before it: the Next of the page before. Defaults
	// to "", the beginning.
	From string

	// Max is the size of the page, 1…[MaxPage]. Defaults to MaxPage.
	Max int
}

// MaxPage is how many queues one page of a list has at most (List Queues,
// maxresults).
const MaxPage = 5000

// Page is one page of a list of queues.
type Page struct {
	Queues []Listed // in order of their names
	Next   string   // the From of the next page; "" when this is the last
}

// Listed is one queue in a list.
type Listed struct {
	Name     string
	Metadata map[string]string
}

// List returns a page of the queues of an account, by name. An account that
// holds none has an empty list. A page size out of range is
// [queue.ErrInvalid]. The cost is O(log n) and the size of the page.
func (e *Engine) List(ctx context.Context, accountName string, o *ListOptions) (Page, error) {
	if o == nil {
		o = &ListOptions{}
	}
	limit := o.Max
	if limit == 0 {
		limit = MaxPage
	}
	if err := ready(ctx, nil); err != nil {
		return Page{}, queue.Explain(err, "list", queue.Name{Account: accountName}, "")
	}
	if limit < 1 || limit > MaxPage {
		return Page{}, queue.Explain(&queue.Error{Kind: queue.ErrInvalid, Detail: "page size is outside 1…5000"},
			"list", queue.Name{Account: accountName}, "")
	}
	if err := e.enter(reads); err != nil {
		return Page{}, queue.Explain(err, "list", queue.Name{Account: accountName}, "")
	}
	page, seen := e.page(accountName, o, limit)
	e.leave()
	if err := seen.wait(ctx); err != nil {
		return Page{}, queue.Explain(err, "list", queue.Name{Account: accountName}, "")
	}
	return page, nil
}

// page also returns the newest change of what it shows.
func (e *Engine) page(accountName string, o *ListOptions, limit int) (Page, *ticket) {
	a := e.account(accountName, false)
	if a == nil {
		return Page{}, nil
	}
	page, found, seen := a.page(o.Prefix, o.From, limit)
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

func (a *account) page(prefix, from string, limit int) (Page, []*contents, *ticket) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	start, _ := slices.BinarySearch(a.names, max(prefix, from))
	var page Page
	var found []*contents
	for _, name := range a.names[start:] {
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(found) == limit {
			page.Next = name
			break
		}
		page.Queues = append(page.Queues, Listed{Name: name})
		found = append(found, a.queues[name])
	}
	return page, found, a.pending
}
