package tabletest

import (
	"sync"

	"github.com/millrace/millrace/table"
)

var snapshotTests = []test{
	{"APageHasNoPartOfAGroup", pageHasNoPartOfAGroup},
	{"TwoPagesAreNotOneSnapshot", pagesAreNoSnapshot},
}

// pageHasNoPartOfAGroup has a writer that gives the entities of a partition the same number again and again, in
// groups, and inserts or deletes one of them, while readers look. A round begins when a reader does.
func pageHasNoPartOfAGroup(e *env) {
	e.knownFor(e.h.Quirks.GroupsShow)
	const entities, rounds = 10, 60
	rows := numbered(entities)
	e.fill("p", rows)
	e.round(rows, 0)
	looking := make(chan bool)
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for ok := true; <-looking; {
				ok = ok && e.whole(entities)
			}
		})
	}
	for n := range int32(rounds) {
		looking <- true
		e.round(rows, n+1)
	}
	close(looking)
	all.Wait()
}

// round gives all entities a number in one group. Even rounds have one entity more.
func (e *env) round(rows []string, n int32) {
	e.Helper()
	var group []table.Change
	for _, row := range rows {
		group = append(group, table.Updating(table.Entity{Key: key("p", row), Properties: properties{"N": n}, ETag: table.Any}))
	}
	extra := key("p", "extra")
	if n%2 == 0 {
		group = append(group, table.Inserting(table.Entity{Key: extra, Properties: properties{"N": n}}))
	} else {
		group = append(group, table.Deleting(extra, table.Any))
	}
	if _, err := e.s.Apply(e.Context(), group); err != nil {
		e.Error(err)
	}
}

// whole reads a page and reports whether all of it is of one round.
func (e *env) whole(entities int) bool {
	p, err := e.s.Query(e.Context(), table.Query{Partition: "p"})
	if err != nil || len(p.Entities) < entities {
		e.Errorf("a page has %d entities: %v", len(p.Entities), err)
		return false
	}
	n := p.Entities[0].Properties["N"]
	for _, got := range p.Entities {
		if got.Properties["N"] != n {
			e.Errorf("a page has an entity of the round %v and one of %v", n, got.Properties["N"])
			return false
		}
	}
	if round, _ := n.(int32); len(p.Entities)-entities != int(1-round%2) {
		e.Errorf("in the round %v, a page has %d entities", n, len(p.Entities))
		return false
	}
	return true
}

// pagesAreNoSnapshot: a change between two pages shows in the second, and the reader did not hold it up.
func pagesAreNoSnapshot(e *env) {
	e.fill("p", numbered(4))
	q := table.Query{Partition: "p", Top: 2}
	p := e.page(q)
	fresh := e.update(key("p", "0003"), table.Any, properties{"New": true})
	e.update(key("p", "0000"), table.Any, properties{"New": true})
	q.Token = p.Next
	p = e.page(q)
	if len(p.Entities) != 2 {
		e.Fatalf("the second page has %q", keys(p))
	}
	e.same(p.Entities[1], key("p", "0003"), fresh, properties{"New": true})
}
