package queue

import (
	"context"
	"iter"
)

// Account is a storage account's queues. Like a [Queue] it sends one request a call and is safe
// for concurrent use.
type Account interface {
	// Name returns the account's name. It sends no request.
	Name() string

	// Open returns the queue with this name, whether or not it exists. It sends no request. The
	// error is [ErrInvalid] if the service would refuse the name.
	Open(name string) (Manager, error)

	// List returns one page of the account's queues, ordered by name. The page is empty if the
	// account has no queues. Nil options mean all queues, in the largest pages; [ListAll] yields
	// the queues of all pages.
	List(ctx context.Context, o *ListOptions) (Page, error)
}

// MaxPage is the largest number of queues in one page of a list.
const MaxPage = 5000

// ListOptions select queues of an account. Nil and the zero value mean all of them, in the
// largest pages.
type ListOptions struct {
	// Prefix selects the names that begin with it. Defaults to "", all names.
	Prefix string

	// Marker is the Next of the previous page. It is opaque, and stays valid while the list is
	// read, even if queues are created and dropped. Defaults to "", the first page.
	Marker string

	// Max is the largest number of queues in the page, 1…[MaxPage]. Defaults to MaxPage.
	Max int
}

// Page is one page of a list of queues. It may have fewer queues than were asked for, even none,
// without being the last.
type Page struct {
	Queues []Listed
	Next   string // Marker of the next page; "" on the last
}

// Listed is one queue in a list.
type Listed struct {
	Name string

	// Metadata are the queue's name-value pairs, as in [Properties].
	Metadata map[string]string
}

// ListAll yields the queues of an account whose names begin with the prefix, ordered by name. It
// requests a page of up to [MaxPage] queues when one is needed. An error is yielded last, with a
// zero Listed.
func ListAll(ctx context.Context, a Account, prefix string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		for o := (ListOptions{Prefix: prefix}); ; {
			page, err := a.List(ctx, &o)
			if err != nil {
				yield(Listed{}, err)
				return
			}
			for _, q := range page.Queues {
				if !yield(q, nil) {
					return
				}
			}
			if page.Next == "" {
				return
			}
			if page.Next == o.Marker {
				yield(Listed{}, &Error{Op: "list", Queue: Name{Account: a.Name()}, Detail: "the next page has the marker of this one"})
				return
			}
			o.Marker = page.Next
		}
	}
}

// Size returns Max, or [MaxPage] if it is 0 or o is nil.
func (o *ListOptions) Size() int {
	if o == nil || o.Max == 0 {
		return MaxPage
	}
	return o.Max
}
