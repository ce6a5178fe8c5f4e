package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// paged is an account whose list has these pages, one of which may fail.
type paged struct {
	pages map[string]queue.Page // by their markers
	asked []queue.ListOptions
	err   error // of a page that is not there
}

func (*paged) Name() string                       { return "paged" }
func (*paged) Open(string) (queue.Manager, error) { return nil, errors.ErrUnsupported }
func (p *paged) List(_ context.Context, o *queue.ListOptions) (queue.Page, error) {
	p.asked = append(p.asked, *o)
	page, ok := p.pages[o.Marker]
	if !ok {
		return page, p.err
	}
	return page, nil
}

func listed(names ...string) (all []queue.Listed) {
	for _, name := range names {
		all = append(all, queue.Listed{Name: name})
	}
	return all
}

// all are the names that a list yields, up to so many, and how it ended.
func all(a queue.Account, most int) (names []string, err error) {
	for q, err := range queue.ListAll(context.Background(), a, "or") {
		if err != nil {
			return names, err
		}
		if names = append(names, q.Name); len(names) == most {
			break
		}
	}
	return names, nil
}

func TestListAllWalksThePages(t *testing.T) {
	broken := errors.New("broken")
	p := &paged{err: broken, pages: map[string]queue.Page{
		"":       {Queues: listed("a", "b"), Next: "second"},
		"second": {Next: "third"}, // one may be empty and not the last
		"third":  {Queues: listed("c")},
	}}
	if names, err := all(p, 10); err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("got %q, %v; want a, b and c", names, err)
	}
	if want := []queue.ListOptions{{Prefix: "or"}, {Prefix: "or", Marker: "second"}, {Prefix: "or", Marker: "third"}}; !slices.Equal(p.asked, want) {
		t.Errorf("requests: got %+v, want %+v", p.asked, want)
	}
	p.asked = nil
	if names, err := all(p, 2); err != nil || len(names) != 2 || len(p.asked) != 1 {
		t.Errorf("stopped early: got %q, %v, requests %+v; want 2 names and 1 request", names, err, p.asked)
	}
	delete(p.pages, "third")
	if names, err := all(p, 10); !errors.Is(err, broken) || len(names) != 2 {
		t.Errorf("with a page that fails: got %q, %v; want 2 names and its error", names, err)
	}
	p.pages["second"] = queue.Page{Queues: listed("x"), Next: "second"}
	if names, err := all(p, 100); err == nil || len(names) != 3 {
		t.Errorf("with a page that leads to itself: got %q, %v; want 3 names and an error", names, err)
	}
}

func TestNamesArePrintedAsFarAsTheyAreKnown(t *testing.T) {
	for want, n := range map[string]queue.Name{
		"acme/orders": {Account: "acme", Queue: "orders"},
		"orders":      {Queue: "orders"},
		"acme":        {Account: "acme"},
		"":            {},
	} {
		if got := n.String(); got != want {
			t.Errorf("String of %+v: got %q, want %q", n, got, want)
		}
	}
}

func TestSizesOfPages(t *testing.T) {
	for _, o := range []*queue.ListOptions{nil, {}, {Max: 1}, {Max: driver.MaxPage}} {
		if err := driver.CheckList(o); err != nil {
			t.Errorf("%+v: got the error %v, want none", o, err)
		}
	}
	for _, n := range []int{-1, driver.MaxPage + 1} {
		if err := driver.CheckList(&queue.ListOptions{Max: n}); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%d: got %v, want ErrInvalid", n, err)
		}
	}
	if a, b, c := driver.PageSize(nil), driver.PageSize(&queue.ListOptions{}), driver.PageSize(&queue.ListOptions{Max: 7}); a != driver.MaxPage || b != driver.MaxPage || c != 7 {
		t.Errorf("PageSize: got %d, %d and %d, want %d, %d and 7", a, b, c, driver.MaxPage, driver.MaxPage)
	}
}
