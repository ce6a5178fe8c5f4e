package tabletest

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/table"
)

var queryTests = []test{
	{"AQueryYieldsEntitiesInOrder", yieldsInOrder},
	{"TopIsTheFirstEntities", topIsFirst},
	{"ARangeHasItsRowsOnly", rangeHasItsRows},
	{"AQueryReturnsWhatGetReturns", queryReturnsWhatGetReturns},
	{"AllReadsPageAfterPage", allReadsOn},
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

func yieldsInOrder(e *env) {
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
}

// topIsFirst has the first entities of a page, with a token whenever there are more.
func topIsFirst(e *env) {
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
}

func rangeHasItsRows(e *env) {
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
}

func queryReturnsWhatGetReturns(e *env) {
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
}

func allReadsOn(e *env) {
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
}
