package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/table"
)

// A search finds what a look at each video finds, by pages of any size, in bounded memory: no reader holds more than a page.
func TestSearchFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		ts := newTables()
		x := ts.index(nil)
		uploads := drawVideos(r, 12)
		for _, v := range uploads {
			if err := x.Put(t.Context(), v.Name, v.Version, v.Credits); err != nil {
				r.Fatal(err)
			}
		}
		videos := last(uploads)
		part := rapid.SampledFrom([]string{"sea", "s*", "SE*", "title:sea*", "actor:se", "keyword:ära", "👻", "director:g*", "nobody", "title:n*"})
		query := strings.Join(rapid.SliceOfN(part, 1, 4).Draw(r, "query"), " ")
		var want []string
		for name, v := range videos {
			if scan(v.Credits, query) {
				want = append(want, name)
			}
		}
		slices.Sort(want)
		found, err := search(t.Context(), x, query, rapid.IntRange(1, 3).Draw(r, "page"))
		if err != nil || !slices.Equal(names(found), want) {
			r.Fatalf("%s: got %v, %v; want %v of %v", query, names(found), err, want, videos)
		}
	})
}

// scan is a search without an index, and without its code for words.
func scan(c Credits, query string) bool {
	texts := map[string][]string{"title": {c.Title}, "actor": c.Actors, "director": c.Directors, "keyword": c.Keywords}
	for _, one := range strings.Fields(strings.ToLower(query)) {
		field, word, found := strings.Cut(one, ":")
		if !found {
			field, word = "", one
		}
		word, prefix := strings.CutSuffix(word, "*")
		matches := false
		for name, all := range texts {
			for _, text := range all {
				for _, has := range strings.Fields(strings.ToLower(text)) {
					matches = matches || (field == "" || field == name) && (has == word || prefix && strings.HasPrefix(has, word))
				}
			}
		}
		if !matches {
			return false
		}
	}
	return true
}

// counting counts queries, and makes every page that it can empty: one without entities comes first.
type counting struct {
	table.Store
	queries, largest int
}

func (c *counting) Query(ctx context.Context, q table.Query) (table.Page, error) {
	if q.Token == "" {
		return table.Page{Next: table.TokenFor(table.Key{Partition: q.Partition, Row: q.FromRow})}, nil
	}
	p, err := c.Store.Query(ctx, q)
	c.queries++
	c.largest = max(c.largest, len(p.Entities))
	return p, err
}

// A rare word makes a search skip the postings of frequent ones, and pages without entities are not the end.
func TestARareWordSkipsFrequentOnes(t *testing.T) {
	ts := newTables()
	plain := ts.index(nil)
	for i := range 1000 {
		c := Credits{Title: "Storm"}
		if i%400 == 399 {
			c.Keywords = []string{"ship"}
		}
		put(t, plain, fmt.Sprintf("%04d", i), 1, c)
	}
	postings := &counting{Store: ts.postings}
	x := New(ts.videos, &counting{Store: ts.terms}, postings)
	found, err := search(t.Context(), x, "title:storm keyword:ship", 10)
	if got := fmt.Sprint(names(found)); err != nil || got != "[0399 0799]" || postings.queries > 6 || postings.largest > pageSize {
		t.Errorf("got %s, %v, with %d pages of up to %d postings; want [0399 0799] with 6 pages of up to %d", got, err, postings.queries, postings.largest, pageSize)
	}
	all, err := search(t.Context(), x, "st*", 300)
	if err != nil || len(all) != 1000 {
		t.Errorf("got %d videos, %v; want 1000", len(all), err)
	}
}

// A posting whose video has other credits, as a worker leaves it that was killed, or whose video does not exist, is not shown.
func TestASearchBelievesTheVideo(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	put(t, x, "a", 2, sea)
	if err := x.add(t.Context(), term{"title", "glass"}, "a", 1); err != nil {
		t.Fatal(err)
	}
	if err := x.add(t.Context(), term{"title", "sea"}, "gone", 1); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]int{"title:glass": 0, "title:sea": 1} {
		if found, err := search(t.Context(), x, query, 10); err != nil || len(found) != want {
			t.Errorf("%s: got %v, %v; want %d", query, found, err, want)
		}
	}
}

// What a search cannot do it says on one line, and the errors of tables say what was searched.
func TestWhatSearchRefuses(t *testing.T) {
	ts := newTables()
	x := ts.index(nil)
	for i := range maxTermsOfWord + 1 {
		put(t, x, fmt.Sprintf("%03d", i), 1, Credits{Title: fmt.Sprintf("part%03d", i)})
	}
	few, err := ParseQuery("part00*")
	if err != nil {
		t.Fatal(err)
	}
	many, err := ParseQuery("title:part*")
	if err != nil {
		t.Fatal(err)
	}
	if p, err := x.Search(t.Context(), few, "", 1000); err != nil || len(p.Videos) != 10 {
		t.Errorf("%s: got %d videos, %v; want 10", few, len(p.Videos), err)
	}
	if _, err := x.Search(t.Context(), many, "", 1); !errors.Is(err, ErrQuery) || !strings.HasSuffix(err.Error(), "more than 100 words begin as title:part*; write more of it") {
		t.Errorf("%s: got %v", many, err)
	}
	put(t, x, "100", 2, Credits{Title: "whole"})
	if p, err := x.Search(t.Context(), many, "", 1000); err != nil || len(p.Videos) != maxTermsOfWord {
		t.Errorf("%s: got %d videos, %v; want 100", many, len(p.Videos), err)
	}
	if _, err := x.Search(t.Context(), Query{}, "", 1); !errors.Is(err, ErrQuery) {
		t.Errorf("no query: got %v", err)
	}
	for _, limit := range []int{0, -1, 1001} {
		if _, err := x.Search(t.Context(), few, "", limit); err == nil {
			t.Errorf("%d videos in a page: got no error", limit)
		}
	}
	if _, err := x.Search(t.Context(), few, "a/b", 1); !errors.Is(err, table.ErrInvalid) || !strings.HasPrefix(err.Error(), "search for part00*: ") {
		t.Errorf("a place that is none: got %v", err)
	}
}
