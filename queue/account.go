package queue

import (
	"context"
	"iter"
)

// Account is the queues of one storage account. Like a [Queue] it sends one request a
// call, and is safe for concurrent use.
type Account interface {
	// Name is the account's name. It sends nothing.
	Name() string

	// Open returns the queue of this name, whether or not it exists. It sends nothing.
	// A name that the service would not take is [ErrInvalid].
	Open(name string) (Manager, error)

	// List returns one page of the account's queues, in the order of their names. An
	// account without queues has an empty page. Nil options mean all queues, up to the
	// largest page; [ListAll] goes through all pages.
	List(ctx context.Context, o *ListOptions) (Page, error)
}

// MaxPage is how many queues one page of a list has at most.
const MaxPage = 5000

// ListOptions say which queues of an account to list. Nil and the zero value mean all of
// them, up to the largest page.
type ListOptions struct {
	// Prefix restricts the list to names that begin with it. Defaults to "", all names.
	Prefix string

	// Marker is the Next of the page before. It is opaque, and good as long as it takes
	// to walk the list, whatever is created and dropped meanwhile. Defaults to "", the
	// beginning.
	Marker string

	// Max is how many queues the page may have, 1…[MaxPage]. Defaults to MaxPage.
	Max int
}

// Page is one page of a list of queues. It may have fewer queues than were asked for, or
// none, and still not be the last.
type Page struct {
	Queues []Listed
	Next   string // the Marker of the next page; "" when this is the last
}

// Listed is one queue in a list.
type Listed struct {
	Name string

	// Metadata are the queue's name-value pairs, as in [Properties].
	Metadata map[string]string
}

// ListAll yields the queues of an account whose names begin with the prefix, in the order
// of their names. Each page of up to [MaxPage] queues is one request, sent when it is
// needed. An error is yielded last, with a zero Listed.
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
				yield(Listed{}, &Error{Op: "list", Queue: Name{Account: a.Name()}, Detail: "a page names itself as the next one"})
				return
			}
			o.Marker = page.Next
		}
	}
}

// CheckList refuses options of a list that the service would, with [ErrInvalid]. Nil is
// fine.
func CheckList(o *ListOptions) error {
	if o != nil && (o.Max < 0 || o.Max > MaxPage) {
		return invalid("page of %d queues is outside 1…%d", o.Max, MaxPage)
	}
	return nil
}

// Size returns Max with its default, [MaxPage], filled in. Safe on nil.
func (o *ListOptions) Size() int {
	if o == nil || o.Max == 0 {
		return MaxPage
	}
	return o.Max
}
