package channels

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/table"
)

// hooked is a table that calls a function before each request, by the number of the request, and one after it whose
// error is the answer.
type hooked struct {
	table.Store
	requests      *int
	before, after func(n int, op string) error
}

func (h hooked) around(op string, act func() error) error {
	*h.requests++
	n := *h.requests
	if h.before != nil {
		if err := h.before(n, op); err != nil {
			return err
		}
	}
	err := act()
	if h.after != nil && err == nil {
		return h.after(n, op)
	}
	return err
}

func (h hooked) Get(ctx context.Context, k table.Key) (e table.Entity, err error) {
	err = h.around("get", func() error { e, err = h.Store.Get(ctx, k); return err })
	return e, err
}

func (h hooked) Insert(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	err = h.around("insert", func() error { etag, err = h.Store.Insert(ctx, e); return err })
	return etag, err
}

func (h hooked) Update(ctx context.Context, e table.Entity) (etag table.ETag, err error) {
	err = h.around("update", func() error { etag, err = h.Store.Update(ctx, e); return err })
	return etag, err
}

func (h hooked) Delete(ctx context.Context, k table.Key, etag table.ETag) error {
	return h.around("delete", func() error { return h.Store.Delete(ctx, k, etag) })
}

func (h hooked) Apply(ctx context.Context, changes []table.Change) (etags []table.ETag, err error) {
	err = h.around("apply", func() error { etags, err = h.Store.Apply(ctx, changes); return err })
	return etags, err
}

func (h hooked) Query(ctx context.Context, q table.Query) (p table.Page, err error) {
	err = h.around("query", func() error { p, err = h.Store.Query(ctx, q); return err })
	return p, err
}

// errAway is that of a store that does not answer.
var errAway = &table.Error{Kind: table.ErrUnavailable, Detail: "no answer"}

func newSite() *Site { return &Site{Channels: table.Memory("Channels"), Posts: table.Memory("Blogs")} }

// hook returns the site with functions around its requests, which are counted over both tables.
func (s *Site) hook(before, after func(n int, op string) error) *Site {
	n := new(int)
	return &Site{Channels: hooked{s.Channels, n, before, after}, Posts: hooked{s.Posts, n, before, after}}
}

// at returns a function that calls f before the nth request, once.
func at(nth int, f func()) func(int, string) error {
	return func(n int, _ string) error {
		if n == nth {
			f()
		}
		return nil
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fill writes n posts, with titles from 0.
func (s *Site) fill(t *testing.T, c Channel, n int) (all []Post) {
	t.Helper()
	for i := range n {
		all = append(all, must[Post](t)(s.Write(t.Context(), c, "ann", fmt.Sprint("title ", i), "text")))
	}
	return all
}

// mark begins the deletion of a channel.
func (s *Site) mark(t *testing.T, c Channel) {
	t.Helper()
	if err := s.BeginDeletion(t.Context(), c.Name, c.Incarnation); err != nil {
		t.Error(err)
	}
}

// posts returns how many posts the table has of an incarnation.
func (s *Site) posts(t *testing.T, c Channel) (n int) {
	t.Helper()
	for _, err := range table.All(context.Background(), s.Posts, postsOf(c.Name, c.Incarnation)) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// late puts a post into the table as a writer does that died before its second look.
func (s *Site) late(t *testing.T, c Channel, n int) {
	t.Helper()
	b := Post{ID: fmt.Sprintf("%s-late%d", time.Now().UTC().Format(rowTime), n), User: "bob", Title: "late", Text: "text", Created: now()}
	if err := s.insert(t.Context(), c, b); err != nil {
		t.Fatal(err)
	}
}
