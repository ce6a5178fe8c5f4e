package tabletest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/table"
)

var queryTests = []test{
	{"AQueryYieldsEntitiesInOrder", func(e *env) {
		e.selects(table.Query{})
		e.selects(table.Query{Partition: "a"})
		e.scatter()
		e.selects(table.Query{}, scattered...)
		e.selects(table.Query{Partition: "a"}, scattered[:6]...)
		e.selects(table.Query{Partition: "a b"}, "a b/1")
		e.selects(table.Query{Partition: "A"})
		e.selects(table.Query{Partition: "none"})
		for _, page := range e.pages(table.Query{}) {
			for _, got := range page.Entities {
				e.same(got, got.Key, got.ETag, properties{"Key": got.Key.String()})
			}
		}
	}},
	// A page has the first entities, with a token whenever there are more.
	{"TopIsTheFirstEntities", func(e *env) {
		e.fill("p", numbered(12))
		for _, top := range []int{1, 2, 5, 11} {
			p := e.page(table.Query{Partition: "p", Top: top})
			if got := keys(p); len(got) != top || got[0] != "p/0000" || p.Next == "" {
				e.Errorf("Top %d: the page has %q and the token %q", top, got, p.Next)
			}
		}
		for _, top := range []int{12, 13, 1000, 0} {
			if got := keys(e.page(table.Query{Partition: "p", Top: top})); len(got) != 12 {
				e.Errorf("Top %d: the page has %q", top, got)
			}
		}
		for _, top := range []int{1, 3, 4, 12} {
			want := e.selected(table.Query{Partition: "p"})
			e.selects(table.Query{Partition: "p", Top: top}, want...)
			e.selects(table.Query{Top: top}, want...)
		}
	}},
	{"ARangeHasItsRowsOnly", func(e *env) {
		e.scatter()
		e.insert(key("A", "1"), nil)
		for _, c := range []struct {
			from, to string
			want     []string
		}{
			{"1", "", scattered[1:6]},
			{"10", "", scattered[2:6]},
			{"11", "", scattered[3:6]},
			{"", "1", scattered[:1]},
			{"", "10", scattered[:2]},
			{"", "11", scattered[:3]},
			{"1", "2", scattered[1:3]},
			{"0", "9", scattered[1:4]},
			{"b", "", nil},
			{"", "b", scattered[:6]},
			{"1", "1 ", scattered[1:2]},
			{"1", "1\U0010fffd", scattered[1:3]},
		} {
			for _, top := range []int{0, 1} {
				e.selects(table.Query{Partition: "a", FromRow: c.from, ToRow: c.to, Top: top}, c.want...)
			}
		}
	}},
	{"AQueryReturnsWhatGetReturns", func(e *env) {
		for _, row := range numbered(5) {
			e.insert(key("p", row), properties{"Row": row, "Bytes": []byte(row), "N": int64(len(row))})
		}
		e.update(key("p", "0003"), table.Any, nil)
		n := 0
		for got, err := range table.All(e.Context(), e.s, table.Query{}) {
			e.ok(err)
			want := e.get(got.Key)
			e.same(got, want.Key, want.ETag, want.Properties)
			if !got.Modified.Equal(want.Modified) {
				e.Errorf("modified at %v by a query and %v by get", got.Modified, want.Modified)
			}
			// The version of a query is good for a change.
			e.update(got.Key, got.ETag, properties{"Seen": true})
			n++
		}
		if n != 5 {
			e.Errorf("the query returned %d entities", n)
		}
	}},
	{"AllReadsPageAfterPage", func(e *env) {
		e.fill("p", numbered(5))
		e.fill("q", numbered(3))
		q := table.Query{Top: 2}
		var got []string
		for entity, err := range table.All(e.Context(), e.s, q) {
			e.ok(err)
			got = append(got, entity.Key.String())
		}
		if want := e.selected(q); !slices.Equal(got, want) || len(got) != 8 {
			e.Errorf("All yields %q, and the pages have %q", got, want)
		}
		for _, err := range table.All(e.Context(), e.s, q) {
			e.ok(err)
			break // leaving early is fine
		}
		q.Token = e.page(q).Next
		rest := 0
		for _, err := range table.All(e.Context(), e.s, q) {
			e.ok(err)
			rest++
		}
		if rest != 6 {
			e.Errorf("from the second page on there are %d entities", rest)
		}
		ctx, why := e.ended()
		calls := 0
		for entity, err := range table.All(ctx, e.s, q) {
			if calls++; !errors.Is(err, why) || entity.Key != (table.Key{}) {
				e.Errorf("All yields %v and %v after its context has ended", entity, err)
			}
		}
		if calls != 1 {
			e.Errorf("All yields %d errors", calls)
		}
	}},
}

// scattered are keys in the order of their bytes.
var scattered = []string{"a/", "a/1", "a/10", "a/2", "a/B", "a/a", "a b/1", "a-b/2", "aa/1", "b/0", "b/~", "ä/1"}

// scatter inserts entities in another order than that of their keys.
func (e *env) scatter() {
	for i := range scattered {
		text := scattered[(i*7+3)%len(scattered)]
		k := split(text)
		e.insert(k, properties{"Key": text})
	}
}

// split returns the key that is written as partition/row.
func split(text string) table.Key {
	for i := range text {
		if text[i] == '/' {
			return key(text[:i], text[i+1:])
		}
	}
	panic(text)
}

var pageTests = []test{
	{"APageEndsAtAThousandEntities", func(e *env) {
		e.fill("p", numbered(1003))
		for _, q := range []table.Query{{Partition: "p"}, {}, {Partition: "p", Top: 1000}} {
			pages := e.pages(q)
			if len(pages[0].Entities) != 1000 || pages[0].Next == "" {
				e.Errorf("the first page has %d entities and the token %q", len(pages[0].Entities), pages[0].Next)
			}
			if got := keys(pages...); len(got) != 1003 || !slices.IsSorted(got) || got[1000] != "p/1000" {
				e.Errorf("the pages have %d entities", len(got))
			}
		}
	}},
	{"APageEndsAtFourMebibytes", func(e *env) {
		var want []string
		for i := range 5 {
			big := largest("p", fmt.Sprint(i))
			e.insert(big.Key, big.Properties)
			want = append(want, big.Key.String())
		}
		pages := e.pages(table.Query{Partition: "p"})
		if got := keys(pages...); !slices.Equal(got, want) {
			e.Errorf("the pages have %q", got)
		}
		e.knownFor(e.h.Quirks.LargePages)
		for i, p := range pages {
			size := 0
			for _, got := range p.Entities {
				size += got.Size()
			}
			if size > 4<<20 {
				e.Errorf("page %d has %d bytes", i, size)
			}
		}
	}},
	{"APageEndsWhereAPartitionEnds", func(e *env) {
		e.knownFor(e.h.Quirks.PagesCrossPartitions)
		for _, partition := range []string{"a", "b", "c"} {
			e.fill(partition, numbered(3))
		}
		for _, p := range e.pages(table.Query{}) {
			for _, got := range p.Entities {
				if got.Partition != p.Entities[0].Partition {
					e.Errorf("a page has %q", keys(p))
				}
			}
		}
		if p := e.page(table.Query{Partition: "b", Top: 3}); p.Next != "" && len(e.selected(table.Query{Partition: "b", Token: p.Next})) != 0 {
			e.Errorf("a partition ends with a token of others")
		}
	}},
	// What a filter leaves out makes pages that are empty, with a token.
	{"APageMayBeEmptyBeforeTheEnd", func(e *env) {
		e.fill("a", numbered(3))
		e.insert(key("b", "wanted"), properties{"Wanted": true})
		q := table.Query{Filter: table.Equal("Wanted", true)}
		e.selects(q, "b/wanted")
		e.knownFor(e.h.Quirks.PagesCrossPartitions)
		if p := e.page(q); len(p.Entities) != 0 || p.Next == "" {
			e.Errorf("the first page has %q and the token %q", keys(p), p.Next)
		}
	}},
	// All that a token could name is deleted.
	{"APageMayBeginWhereNothingIs", func(e *env) {
		e.fill("p", numbered(6))
		q := table.Query{Partition: "p", Top: 2}
		p := e.page(q)
		for _, row := range []string{"0001", "0002", "0003"} {
			e.ok(e.s.Delete(e.Context(), key("p", row), table.Any))
		}
		q.Token = p.Next
		e.selects(q, "p/0004", "p/0005")
		for _, row := range []string{"0000", "0004", "0005"} {
			e.ok(e.s.Delete(e.Context(), key("p", row), table.Any))
		}
		e.selects(q)
		e.fill("q", numbered(2))
		e.selects(q) // the token of a partition stays in it
	}},
	// A token is a place. What comes before it is in no later page, what comes behind it
	// is. It lies behind the last entity of its page, up to the next one, and where exactly
	// is the store's affair.
	{"InsertedBeforeATokenIsNotSeenAndBeyondIs", func(e *env) {
		e.fill("p", []string{"b", "d", "f", "h"})
		for _, q := range []table.Query{{Partition: "p", Top: 2}, {Top: 2}} {
			p := e.page(q)
			if got := keys(p); !slices.Equal(got, []string{"p/b", "p/d"}) || p.Next == "" {
				e.Fatalf("the first page has %q and the token %q", got, p.Next)
			}
			e.fill("p", []string{"a", "c", "g", "i"}) // before the first page, in it, and beyond the token
			q.Token = p.Next
			e.selects(q, "p/f", "p/g", "p/h", "p/i")
			e.selects(q, "p/f", "p/g", "p/h", "p/i") // a token can be used again
			e.insert(key("p", "e"), nil)
			rest := e.selected(q)
			if len(rest) > 0 && rest[0] == "p/e" {
				rest = rest[1:]
			}
			if !slices.Equal(rest, []string{"p/f", "p/g", "p/h", "p/i"}) {
				e.Errorf("the rest is %q", rest)
			}
			e.ok(e.s.Delete(e.Context(), key("p", "e"), table.Any))
			e.ok(e.s.Delete(e.Context(), key("p", "f"), table.Any))
			e.selects(q, "p/g", "p/h", "p/i")
			e.insert(key("p", "f"), nil)
			for _, row := range []string{"a", "c", "g", "i"} {
				e.ok(e.s.Delete(e.Context(), key("p", row), table.Any))
			}
		}
	}},
	// Delete page by page, which is how a partition is deleted.
	{"PagesSurviveTheDeletionOfWhatTheyShow", func(e *env) {
		e.fill("p", numbered(25))
		e.fill("q", numbered(2))
		q, deleted := table.Query{Partition: "p", Top: 7}, 0
		for {
			p := e.page(q)
			var changes []table.Change
			for _, got := range p.Entities {
				changes = append(changes, table.Deleting(got.Key, got.ETag))
			}
			if len(changes) > 0 {
				e.ok(errorOf(e.s.Apply(e.Context(), changes)))
			}
			if deleted += len(changes); p.Next == "" {
				break
			}
			q.Token = p.Next
		}
		if deleted != 25 {
			e.Errorf("%d entities were deleted", deleted)
		}
		e.selects(table.Query{}, "q/0000", "q/0001")
	}},
	{"ATokenTakesAnotherTop", func(e *env) {
		e.fill("p", numbered(10))
		want := e.selected(table.Query{Partition: "p"})
		q := table.Query{Partition: "p", Top: 4}
		first := e.page(q)
		q.Token = first.Next
		for _, top := range []int{1, 6, 100, 0} {
			q.Top = top
			e.selects(q, want[len(first.Entities):]...)
		}
	}},
}
