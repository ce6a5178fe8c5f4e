package aztable_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/millrace/millrace/table"
	"github.com/millrace/millrace/table/aztable"
)

// scripted is a table whose service answers every query with a page, and remembers what it was asked.
type scripted struct {
	*aztable.Table
	asked      []url.Values
	next, row  string // where the next page begins
	withPlaces bool
}

const emptyPage = `{"odata.metadata":"x","value":[]}`

func newScripted(t *testing.T, name string) *scripted {
	s := &scripted{}
	var err error
	s.Table, err = aztable.Open("UseDevelopmentStorage=true", name, &aztable.Options{RetryFor: -1, Transport: transport(func(r *http.Request) (*http.Response, error) {
		s.asked = append(s.asked, r.URL.Query())
		h := http.Header{"X-Ms-Request-Id": {"some-id"}}
		if s.withPlaces {
			h.Set("x-ms-continuation-NextPartitionKey", s.next)
			h.Set("x-ms-continuation-NextRowKey", s.row)
		}
		return respond(r, http.StatusOK, h, emptyPage), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhatAQueryAsks has the service's words for it.
func TestWhatAQueryAsks(t *testing.T) {
	for _, c := range []struct {
		q           table.Query
		filter, top string
	}{
		{table.Query{}, "", ""},
		{table.Query{Top: 100}, "", "100"},
		{table.Query{Partition: "p"}, "PartitionKey eq 'p'", ""},
		{table.Query{Partition: "o'Brien & co"}, "PartitionKey eq 'o''Brien & co'", ""},
		{table.Query{Partition: "p", FromRow: "a'", ToRow: "b"}, "PartitionKey eq 'p' and RowKey ge 'a''' and RowKey lt 'b'", ""},
		{table.Query{Partition: "p", Filter: table.Equal("Name", "x' or 1 eq 1")}, "PartitionKey eq 'p' and (Name eq 'x'' or 1 eq 1')", ""},
		{table.Query{Filter: table.Or(table.Equal("A", int32(1)), table.Less("B", 2.0))}, "((A eq 1) or (B lt 2.0))", ""},
		{table.Query{Partition: "p", Filter: table.Or(table.Equal("A", true), table.Filter{})}, "PartitionKey eq 'p'", ""},
	} {
		s := newScripted(t, "Channels")
		if _, err := s.Query(t.Context(), c.q); err != nil {
			t.Fatal(err)
		}
		if got := s.asked[0]; got.Get("$filter") != c.filter || got.Get("$top") != c.top || got.Has("NextPartitionKey") || got.Has("NextRowKey") || got.Has("$filter") != (c.filter != "") {
			t.Errorf("%v asks %v", c.q, got)
		}
	}
}

// TestAnEmptyPageMayHaveAToken, and a place may consist of anything (T-07, T-08, T-09).
func TestAnEmptyPageMayHaveAToken(t *testing.T) {
	q := table.Query{Partition: "p", Top: 10}
	for _, place := range [][2]string{
		{"1!8!cA--", "1!8!YQ--"}, {"1!8!cA--", ""}, {"", "1!8!YQ--"}, {"p", "r"}, {"a b+c%20/?#&=\"'\\<>", "ü€🙂"}, {strings.Repeat("x", 5000), "1"},
	} {
		s := newScripted(t, "Channels")
		s.next, s.row, s.withPlaces = place[0], place[1], true
		page, err := s.Query(t.Context(), q)
		if err != nil || len(page.Entities) != 0 || page.Next == "" {
			t.Fatalf("%q: %v, %v", place, page, err)
		}
		s.withPlaces = false
		next := q
		next.Token, next.Top = page.Next, 3
		if page, err = s.Query(t.Context(), next); err != nil || page.Next != "" {
			t.Fatalf("%q: %v, %v", place, page, err)
		}
		if got := s.asked[1]; got.Get("NextPartitionKey") != place[0] || got.Get("NextRowKey") != place[1] || got.Get("$filter") != "PartitionKey eq 'p'" || got.Get("$top") != "3" {
			t.Errorf("%q: asked %v", place, got)
		}
		if got := s.asked[1]; got.Has("NextRowKey") != (place[1] != "") {
			t.Errorf("%q: asked %v", place, got)
		}
	}
}

// TestAllReadsThroughEmptyPages.
func TestAllReadsThroughEmptyPages(t *testing.T) {
	s := newScripted(t, "Channels")
	s.next, s.withPlaces = "1", true
	n := 0
	pages := 0
	for _, err := range table.All(t.Context(), pageCounter{s, &pages}, table.Query{}) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 0 || pages != 4 {
		t.Errorf("%d entities in %d pages", n, pages)
	}
}

// pageCounter ends the pages after the fourth.
type pageCounter struct {
	*scripted
	n *int
}

func (c pageCounter) Query(ctx context.Context, q table.Query) (table.Page, error) {
	*c.n++
	c.withPlaces = *c.n < 4
	return c.scripted.Query(ctx, q)
}

// TestTokensOfOthersAreRefused before anything is sent.
func TestTokensOfOthersAreRefused(t *testing.T) {
	s := newScripted(t, "Channels")
	s.next, s.row, s.withPlaces = "1!8!cA--", "1!8!YQ--", true
	q := table.Query{Partition: "p", FromRow: "a", ToRow: "m", Filter: table.Equal("A", int32(1))}
	page, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	good := page.Next
	s.asked = nil
	refused := func(name string, q table.Query, s *scripted) {
		t.Helper()
		if page, err := s.Query(t.Context(), q); !errors.Is(err, table.ErrInvalid) || !strings.Contains(err.Error(), "Next of the page before") {
			t.Errorf("%s: %v, %v", name, page, err)
		}
	}
	for name, change := range map[string]func(q *table.Query){
		"partition": func(q *table.Query) { q.Partition = "q" },
		"from":      func(q *table.Query) { q.FromRow = "b" },
		"to":        func(q *table.Query) { q.ToRow = "n" },
		"filter":    func(q *table.Query) { q.Filter = table.Equal("A", int64(1)) },
	} {
		other := q
		other.Token = good
		change(&other)
		refused("another "+name, other, s)
	}
	other := newScripted(t, "Blogs")
	q.Token = good
	refused("another table", q, other)
	for name, bad := range map[string]table.Token{
		"cut":         good[:len(good)-1],
		"cut a lot":   good[:8],
		"longer":      good + "A",
		"line end":    good + "\n",
		"padded":      good + "=",
		"not Base64":  "?",
		"other place": good[:len(good)-4] + "AAAA",
		"of memory":   table.TokenFor(table.Key{Partition: "p", Row: "a"}),
	} {
		q.Token = bad
		refused(name, q, s)
	}
	for i := range good {
		changed := []byte(good)
		changed[i] = 'A' + (changed[i]+1)%26
		q.Token = table.Token(changed)
		refused("changed", q, s)
	}
	if len(s.asked)+len(other.asked) > 0 {
		t.Errorf("%v and %v were sent", s.asked, other.asked)
	}
	q.Token = good
	same := newScripted(t, "channels") // the same table to the service
	if _, err := same.Query(t.Context(), q); err != nil {
		t.Error(err)
	}
}

// TestAPlaceWithControlCharactersIsNoPlace: it could not have come in a header.
func TestAPlaceWithControlCharactersIsNoPlace(t *testing.T) {
	s := newScripted(t, "Channels")
	for _, place := range []string{"a\x00b", "a\r\nb", "a\x7f"} {
		s.next, s.withPlaces = place, true
		if page, err := s.Query(t.Context(), table.Query{}); !errors.Is(err, table.ErrUnavailable) {
			t.Errorf("%q: %v, %v", place, page, err)
		}
	}
}
