package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// page is one page of a list.
type page struct {
	queues []queue.Listed
	next   string
}

// paged is an account whose list has these pages, one of which may fail.
type paged struct {
	pages map[string]page // by their markers
	asked []string        // the markers
	err   error           // of a page that is not there
}

func (*paged) Name() string                       { return "paged" }
func (*paged) Open(string) (queue.Manager, error) { return nil, errors.ErrUnsupported }
func (p *paged) List(_ context.Context, prefix, marker string, limit int) ([]queue.Listed, string, error) {
	if prefix != "or" || limit != 0 {
		return nil, "", fmt.Errorf("asked for the prefix %q and %d queues, want or and 0", prefix, limit)
	}
	p.asked = append(p.asked, marker)
	one, ok := p.pages[marker]
	if !ok {
		return nil, "", p.err
	}
	return one.queues, one.next, nil
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
	p := &paged{err: broken, pages: map[string]page{
		"":       {queues: listed("a", "b"), next: "second"},
		"second": {next: "third"}, // one may be empty and not the last
		"third":  {queues: listed("c")},
	}}
	if names, err := all(p, 10); err != nil || !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("got %q, %v; want a, b and c", names, err)
	}
	if want := []string{"", "second", "third"}; !slices.Equal(p.asked, want) {
		t.Errorf("markers: got %q, want %q", p.asked, want)
	}
	p.asked = nil
	if names, err := all(p, 2); err != nil || len(names) != 2 || len(p.asked) != 1 {
		t.Errorf("stopped early: got %q, %v, requests %+v; want 2 names and 1 request", names, err, p.asked)
	}
	delete(p.pages, "third")
	if names, err := all(p, 10); !errors.Is(err, broken) || len(names) != 2 {
		t.Errorf("with a page that fails: got %q, %v; want 2 names and its error", names, err)
	}
	p.pages["second"] = page{queues: listed("x"), next: "second"}
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
	for _, n := range []int{0, 1, driver.MaxPage} {
		if err := driver.CheckList(n); err != nil {
			t.Errorf("%d: got the error %v, want none", n, err)
		}
	}
	for _, n := range []int{-1, driver.MaxPage + 1} {
		if err := driver.CheckList(n); !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%d: got %v, want ErrInvalid", n, err)
		}
	}
}
