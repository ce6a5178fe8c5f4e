package channels

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// T-13: a channel is an entity with its name as partition and an empty row, a post one whose row begins with the
// time at which it was written.
func TestTheTablesHaveTheModel(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "Channel9", "ann"))
	b := must[Post](t)(s.Write(t.Context(), c, "bob", "<b>title</b>", "two\nlines"))
	e := must[table.Entity](t)(s.Channels.Get(t.Context(), table.Key{Partition: "Channel9"}))
	if e.Text("Owner") != "ann" || !e.Time("CreatedOn").Equal(c.Created) || e.Text("Name") != "Channel9" || e.Text("Incarnation") == "" {
		t.Errorf("channel: got %v", e)
	}
	e = must[table.Entity](t)(s.Posts.Get(t.Context(), table.Key{Partition: "Channel9", Row: b.ID}))
	if e.Text("Title") != "<b>title</b>" || e.Text("Text") != "two\nlines" || e.Text("UserId") != "bob" || !e.Time("CreatedOn").Equal(b.Created) {
		t.Errorf("post: got %v", e)
	}
	if want := b.Created.Format("20060102T150405.0000000"); e.Row[:len(want)] != want || len(e.Row) < len(want)+20 {
		t.Errorf("row: got %q, want %s and a suffix", e.Row, want)
	}
	got, posts, next, err := s.Page(t.Context(), "Channel9", "", 10)
	if err != nil || got != c || len(posts) != 1 || posts[0] != b || next != "" {
		t.Errorf("page: got %v, %v, %q, %v; want %v and %v", got, posts, next, err, c, b)
	}
}

func TestAChannelIsMadeOnce(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	if _, err := s.Create(t.Context(), "a", "bob"); !errors.Is(err, ErrChannelExists) {
		t.Errorf("got %v, want ErrChannelExists", err)
	}
	if got, err := s.Channel(t.Context(), "a"); err != nil || got != c {
		t.Errorf("got %v, %v; want %v", got, err, c)
	}
	if _, err := s.Channel(t.Context(), "b"); !errors.Is(err, ErrNoChannel) {
		t.Errorf("got %v, want ErrNoChannel", err)
	}
	for _, err := range []error{
		second(s.Create(t.Context(), " ", "ann")), second(s.Create(t.Context(), "b", "")), second(s.Channel(t.Context(), "")),
		second(s.Write(t.Context(), c, "", "t", "x")), second(s.Write(t.Context(), c, "u", "", "x")),
		s.BeginDeletion(t.Context(), "a", ""), s.EndDeletion(t.Context(), "", "i"),
	} {
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Posts come in the order in which they were written, each once, however small the pages are.
func TestPagesFollowEachOtherInTheOrderOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
		other := must[Channel](t)(s.Create(t.Context(), "a!", "ann"))
		var want []Post
		for range 25 {
			want = append(want, s.fill(t, c, 1)...)
			s.fill(t, other, 1)
			time.Sleep(time.Microsecond)
		}
		for _, top := range []int{1, 7, 25, 1000} {
			var got []Post
			token := table.Token("")
			for more := true; more; more = token != "" {
				_, page, next, err := s.Page(t.Context(), "a", token, top)
				if err != nil || len(page) > top {
					t.Fatalf("pages of %d: got %d posts, %v", top, len(page), err)
				}
				got, token = append(got, page...), next
			}
			if !slices.Equal(got, want) {
				t.Errorf("pages of %d: got %v, want %v", top, got, want)
			}
		}
	})
}

func TestPagesAndTokensThatAreNoneAreRefused(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	s.fill(t, c, 2)
	other := must[Channel](t)(s.Create(t.Context(), "b", "ann"))
	s.fill(t, other, 2)
	_, _, others, err := s.Page(t.Context(), "b", "", 1)
	if err != nil || others == "" {
		t.Fatalf("got %q, %v; want a token", others, err)
	}
	for _, bad := range []struct {
		token table.Token
		top   int
	}{{"no token", 1}, {others, 1}, {"", 0}, {"", -1}, {"", 1001}} {
		if c, posts, next, err := s.Page(t.Context(), "a", bad.token, bad.top); !errors.Is(err, ErrInvalid) || c != (Channel{}) || posts != nil || next != "" {
			t.Errorf("page of %v: got %v, want ErrInvalid and nothing else", bad, err)
		}
	}
	for _, top := range []int{0, -1, 1001} {
		if _, _, err := s.List(t.Context(), "", top); !errors.Is(err, ErrInvalid) {
			t.Errorf("list of %d: got %v, want ErrInvalid", top, err)
		}
	}
	if _, _, err := s.List(t.Context(), "%", 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("list: got %v, want ErrInvalid", err)
	}
}

func TestTheListHasTheChannelsThatAreNotBeingDeleted(t *testing.T) {
	s := newSite()
	var want []string
	for i := range 20 {
		c := must[Channel](t)(s.Create(t.Context(), fmt.Sprintf("channel %02d", i), "ann"))
		if i%3 == 1 {
			s.mark(t, c)
			continue
		}
		want = append(want, c.Name)
	}
	for _, top := range []int{1, 4, 13, 100} {
		var got []string
		token := table.Token("")
		for more := true; more; more = token != "" {
			page, next, err := s.List(t.Context(), token, top)
			if err != nil || len(page) > top || next != "" && len(page) < top {
				t.Fatalf("pages of %d: got %d channels, %q, %v", top, len(page), next, err)
			}
			for _, c := range page {
				got = append(got, c.Name)
			}
			token = next
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: got %v, want %v", top, got, want)
		}
	}
}

// T-14: what is marked is as if it did not exist, at once.
func TestAMarkedChannelDoesNotExist(t *testing.T) {
	s := newSite()
	c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	s.fill(t, c, 3)
	if err := s.BeginDeletion(t.Context(), "a", "another"); err != nil {
		t.Fatal(err)
	}
	if _, posts, _, err := s.Page(t.Context(), "a", "", 10); err != nil || len(posts) != 3 {
		t.Fatalf("after the mark of another incarnation: got %d posts, %v; want 3", len(posts), err)
	}
	s.mark(t, c)
	s.mark(t, c)
	_, posts, _, err := s.Page(t.Context(), "a", "", 10)
	if !errors.Is(err, ErrNoChannel) || posts != nil {
		t.Errorf("page: got %v, %v; want ErrNoChannel", posts, err)
	}
	if _, err := s.Channel(t.Context(), "a"); !errors.Is(err, ErrNoChannel) {
		t.Errorf("channel: got %v, want ErrNoChannel", err)
	}
	if _, err := s.Write(t.Context(), c, "u", "t", "x"); !errors.Is(err, ErrNoChannel) {
		t.Errorf("write: got %v, want ErrNoChannel", err)
	}
	if all, _, err := s.List(t.Context(), "", 10); err != nil || len(all) != 0 {
		t.Errorf("list: got %v, %v; want none", all, err)
	}
	if n := s.posts(t, c); n != 3 {
		t.Errorf("posts in the table: got %d, want 3", n)
	}
}

// A name is usable at once, and the posts of the channel before do not come back.
func TestAMarkedChannelIsTakenOver(t *testing.T) {
	s := newSite()
	old := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	s.fill(t, old, 30)
	s.mark(t, old)
	c := must[Channel](t)(s.Create(t.Context(), "a", "bob"))
	s.late(t, old, 1)
	want := s.fill(t, c, 2)
	s.late(t, old, 2)
	if _, err := s.Write(t.Context(), old, "u", "t", "x"); !errors.Is(err, ErrNoChannel) {
		t.Errorf("write to the old one: got %v, want ErrNoChannel", err)
	}
	got, posts, _, err := s.Page(t.Context(), "a", "", 10)
	if err != nil || got != c || !slices.Equal(posts, want) {
		t.Errorf("got %v, %v, %v; want %v, %v", got, posts, err, c, want)
	}
	s.mark(t, old) // has no effect any more
	for token := table.Token(""); ; {
		_, next, err := s.DeletePosts(t.Context(), "a", old.Incarnation, token, 7)
		if err != nil {
			t.Fatal(err)
		}
		if token = next; token == "" {
			break
		}
	}
	if err := s.EndDeletion(t.Context(), "a", old.Incarnation); err != nil {
		t.Error(err)
	}
	got, posts, _, err = s.Page(t.Context(), "a", "", 10)
	if err != nil || got != c || !slices.Equal(posts, want) {
		t.Errorf("after the deletion: got %v, %v, %v; want %v, %v", got, posts, err, c, want)
	}
	if n := s.posts(t, old); n != 0 {
		t.Errorf("posts of the old one: got %d, want none", n)
	}
}

// A page has up to 10,000 entities of another incarnation before its first post. It must not be empty for that.
func TestAPageIsNotEmptyBecauseOfPostsBefore(t *testing.T) {
	s := newSite()
	old := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
	for i := range 210 {
		var changes []table.Change
		for j := range 100 {
			b := Post{ID: fmt.Sprintf("1999-%03d-%03d", i, j), User: "u", Title: "t", Text: "x", Created: now()}
			changes = append(changes, table.Inserting(table.Entity{Key: postKey(old, b), Properties: map[string]any{incarnation: string(old.Incarnation)}}))
		}
		must[[]table.ETag](t)(s.Posts.Apply(t.Context(), changes))
	}
	s.mark(t, old)
	c := must[Channel](t)(s.Create(t.Context(), "a", "bob"))
	want := s.fill(t, c, 1)
	if _, posts, next, err := s.Page(t.Context(), "a", "", 10); err != nil || !slices.Equal(posts, want) || next != "" {
		t.Errorf("got %v, %q, %v; want %v", posts, next, err, want)
	}
}

// What happens to a channel between any two requests of a reader is seen, at the end of the page at the latest.
func TestAReaderSeesWhatHappensMeanwhile(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for what, happens := range changesOfAChannel {
			s := newSite()
			c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
			s.fill(t, c, 3)
			slow := s.hook(at(n, func() { happens(t, s, c) }), nil)
			got, posts, next, err := slow.Page(t.Context(), "a", "", 2)
			// Before the first request, the reader sees the new channel.
			if n == 1 && what != "marked" && what != "deleted" {
				if err != nil || len(posts) != 1 || posts[0].Title != "new" {
					t.Errorf("%s before request %d: got %v, %v; want the new post", what, n, posts, err)
				}
				continue
			}
			if !errors.Is(err, ErrNoChannel) || got != (Channel{}) || posts != nil || next != "" {
				t.Errorf("%s before request %d: got %v, %v, %q, %v; want ErrNoChannel and nothing else", what, n, got, posts, next, err)
			}
		}
	}
}

// changesOfAChannel are the ways in which a channel ends.
var changesOfAChannel = map[string]func(t *testing.T, s *Site, c Channel){
	"marked":  func(t *testing.T, s *Site, c Channel) { s.mark(t, c) },
	"deleted": func(t *testing.T, s *Site, c Channel) { s.end(t, c) },
	"taken over": func(t *testing.T, s *Site, c Channel) {
		s.mark(t, c)
		s.anew(t, c)
	},
	"made anew": func(t *testing.T, s *Site, c Channel) {
		s.end(t, c)
		s.anew(t, c)
	},
}

// end deletes a channel as the worker does.
func (s *Site) end(t *testing.T, c Channel) {
	t.Helper()
	s.mark(t, c)
	if _, next, err := s.DeletePosts(t.Context(), c.Name, c.Incarnation, "", 1000); err != nil || next != "" {
		t.Errorf("got %q, %v; want one page", next, err)
	}
	if err := s.EndDeletion(t.Context(), c.Name, c.Incarnation); err != nil {
		t.Error(err)
	}
}

// anew makes a channel of the same name, with one post.
func (s *Site) anew(t *testing.T, c Channel) Channel {
	t.Helper()
	c = must[Channel](t)(s.Create(t.Context(), c.Name, "bob"))
	must[Post](t)(s.Write(t.Context(), c, "bob", "new", "x"))
	return c
}

// What happens to a channel between any two requests of a writer makes it take its post back.
func TestAWriterTakesBackWhatCameTooLate(t *testing.T) {
	for n := 1; n <= 3; n++ {
		for what, happens := range changesOfAChannel {
			s := newSite()
			c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
			slow := s.hook(at(n, func() { happens(t, s, c) }), nil)
			b, err := slow.Write(t.Context(), c, "ann", "late", "x")
			if !errors.Is(err, ErrNoChannel) || b != (Post{}) {
				t.Errorf("%s before request %d: got %v, %v; want ErrNoChannel", what, n, b, err)
			}
			for e, err := range table.All(t.Context(), s.Posts, table.Query{}) {
				if err != nil || e.Text(titleOf) == "late" {
					t.Errorf("%s before request %d: got %v, %v; want no late post", what, n, e, err)
				}
			}
		}
	}
}

// A post is taken back also if its writer was told to stop meanwhile, such as by a visitor who has left.
func TestAPostIsTakenBackAfterTheStop(t *testing.T) {
	for stops := 2; stops <= 3; stops++ {
		s := newSite()
		c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
		ctx, stop := context.WithCancel(t.Context())
		slow := s.hook(at(3, func() { s.mark(t, c) }), at(stops, stop))
		if _, err := slow.Write(ctx, c, "ann", "late", "x"); !errors.Is(err, ErrNoChannel) {
			t.Errorf("stop after request %d: got %v, want ErrNoChannel", stops, err)
		}
		if n := s.posts(t, c); n != 0 {
			t.Errorf("stop after request %d: got %d posts, want none", stops, n)
		}
	}
}

// No request of a write begins later than WriteTimeout after its first, however slow the tables are. What comes later
// than that would be swept by nobody.
func TestAWriteHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite()
		c := must[Channel](t)(s.Create(t.Context(), "a", "ann"))
		begun := time.Now()
		var inserted time.Duration
		slow := s.hook(func(n int, op string) error {
			time.Sleep(WriteTimeout * 2 / 3)
			if op == "insert" {
				inserted = time.Since(begun)
			}
			return nil
		}, nil)
		b, err := slow.Write(t.Context(), c, "ann", "late", "x")
		if !errors.Is(err, errSlow) || b != (Post{}) {
			t.Errorf("got %v, %v; want %v", b, err, errSlow)
		}
		if n := s.posts(t, c); n != 0 || inserted <= WriteTimeout {
			t.Errorf("posts of an insert after %v: got %d, want none after more than %v", inserted, n, WriteTimeout)
		}
	})
}
