package tabletest

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/table"
)

var groupTests = []test{
	{"AGroupMakesAllItsChanges", func(e *env) {
		kept := e.insert(key("p", "update"), properties{"Old": true})
		e.insert(key("p", "any"), properties{"Old": true})
		gone := e.insert(key("p", "delete"), nil)
		e.insert(key("p", "delete any"), nil)
		other := e.insert(key("p", "other"), nil)
		etags, err := e.s.Apply(e.Context(), []table.Change{
			table.Updating(table.Entity{Key: key("p", "update"), Properties: properties{"New": int64(1)}, ETag: kept}),
			table.Deleting(key("p", "delete"), gone),
			table.Inserting(table.Entity{Key: key("p", "insert"), Properties: properties{"New": int64(2)}}),
			table.Deleting(key("p", "delete any"), table.Any),
			table.Updating(table.Entity{Key: key("p", "any"), Properties: properties{"New": int64(3)}, ETag: table.Any}),
		})
		e.ok(err)
		if len(etags) != 5 || etags[1] != "" || etags[3] != "" || etags[0] == kept {
			e.Fatalf("the versions are %q", etags)
		}
		e.has(key("p", "update"), etags[0], properties{"New": int64(1)})
		e.has(key("p", "insert"), etags[2], properties{"New": int64(2)})
		e.has(key("p", "any"), etags[4], properties{"New": int64(3)})
		e.has(key("p", "other"), other, nil)
		e.hasNot(key("p", "delete"))
		e.hasNot(key("p", "delete any"))
		e.selects(table.Query{}, "p/any", "p/insert", "p/other", "p/update")
		e.update(key("p", "update"), etags[0], nil) // the versions are good for changes
	}},
	{"AGroupHasUpToAHundredChanges", func(e *env) {
		e.fill("p", numbered(100)) // one group
		if got := e.selected(table.Query{}); len(got) != 100 {
			e.Errorf("a group of 100 stored %d", len(got))
		}
		var changes []table.Change
		for _, row := range numbered(101) {
			changes = append(changes, table.Updating(table.Entity{Key: key("p", row), Properties: properties{"New": true}, ETag: table.Any}))
		}
		e.is(errorOf(e.s.Apply(e.Context(), changes)), table.ErrTooLarge, "apply", table.Key{})
		e.selects(table.Query{Filter: table.Equal("New", true)})
		e.ok(errorOf(e.s.Apply(e.Context(), changes[:100])))
		if got := e.selected(table.Query{Filter: table.Equal("New", true)}); len(got) != 100 {
			e.Errorf("a group of 100 updated %d", len(got))
		}
	}},
	// Two entities of 1 MiB, which any form of a request within 4 MiB can hold.
	{"AGroupMayHaveTwoMebibytes", func(e *env) {
		one, other := largest("p", "1"), largest("p", "2")
		etags, err := e.s.Apply(e.Context(), []table.Change{table.Inserting(one), table.Inserting(other)})
		e.ok(err)
		e.has(one.Key, etags[0], one.Properties)
		e.has(other.Key, etags[1], other.Properties)
	}},
	// Each kind of change fails at each place of a group.
	{"AGroupThatFailsChangesNothing", func(e *env) {
		stale := e.insert(key("p", "exists"), nil)
		now := e.update(key("p", "exists"), stale, properties{"Here": true})
		spare := e.insert(key("p", "spare"), properties{"Here": true})
		good := func(n int) []table.Change {
			changes := []table.Change{
				table.Inserting(table.Entity{Key: key("p", "new")}),
				table.Deleting(key("p", "spare"), spare),
			}
			return changes[:n]
		}
		for _, c := range []struct {
			name string
			bad  table.Change
			kind error
		}{
			{"an insert of what exists", table.Inserting(table.Entity{Key: key("p", "exists")}), table.ErrExists},
			{"an update of what is missing", table.Updating(table.Entity{Key: key("p", "missing"), ETag: table.Any}), table.ErrMissing},
			{"an update of another version", table.Updating(table.Entity{Key: key("p", "exists"), ETag: stale}), table.ErrPreconditionFailed},
			{"a deletion of what is missing", table.Deleting(key("p", "missing"), table.Any), table.ErrMissing},
			{"a deletion of another version", table.Deleting(key("p", "exists"), stale), table.ErrPreconditionFailed},
		} {
			for before := range 3 {
				group := append(append(good(before), c.bad), good(2)[before:]...)
				etags, err := e.s.Apply(e.Context(), group)
				e.is(err, c.kind, "apply", c.bad.Entity().Key)
				if etags != nil {
					e.Errorf("%s: the versions are %q", c.name, etags)
				}
				e.has(key("p", "exists"), now, properties{"Here": true})
				e.has(key("p", "spare"), spare, properties{"Here": true})
				e.selects(table.Query{}, "p/exists", "p/spare")
				if e.Failed() {
					e.Fatalf("%s as number %d of a group", c.name, before+1)
				}
			}
		}
	}},
	{"AGroupThatBreaksARuleChangesNothing", func(e *env) {
		etag := e.insert(ann, properties{"Here": true})
		bob := key("owners", "bob")
		insert := table.Inserting(table.Entity{Key: bob})
		var large []table.Change
		for i := range 5 {
			large = append(large, table.Inserting(largest("owners", fmt.Sprint(i))))
		}
		for name, c := range map[string]struct {
			group []table.Change
			kind  error
			of    table.Key
		}{
			"nothing":             {nil, table.ErrInvalid, table.Key{}},
			"the zero change":     {[]table.Change{insert, {}}, table.ErrInvalid, table.Key{}},
			"two partitions":      {[]table.Change{insert, table.Inserting(table.Entity{Key: key("others", "bob")})}, table.ErrInvalid, key("others", "bob")},
			"twice inserted":      {[]table.Change{insert, insert}, table.ErrInvalid, bob},
			"changed and deleted": {[]table.Change{table.Updating(table.Entity{Key: ann, ETag: etag}), table.Deleting(ann, table.Any)}, table.ErrInvalid, ann},
			"no ETag":             {[]table.Change{insert, table.Deleting(ann, "")}, table.ErrInvalid, ann},
			"a bad value":         {[]table.Change{insert, table.Inserting(table.Entity{Key: key("owners", "c"), Properties: properties{"V": 1}})}, table.ErrInvalid, key("owners", "c")},
			"a bad key":           {[]table.Change{insert, table.Inserting(table.Entity{Key: key("owners", "a/b")})}, table.ErrInvalid, key("owners", "a/b")},
			"a large value": {[]table.Change{insert, table.Inserting(table.Entity{
				Key: key("owners", "c"), Properties: properties{"V": bytes.Repeat([]byte{1}, 64<<10+1)},
			})}, table.ErrTooLarge, key("owners", "c")},
			"more than 4 MiB": {large, table.ErrTooLarge, table.Key{}},
		} {
			ended, _ := e.ended() // the rules come before it
			if _, err := e.s.Apply(ended, c.group); err == nil {
				e.Errorf("%s: no error", name)
			} else {
				e.is(err, c.kind, "apply", c.of)
			}
		}
		e.has(ann, etag, properties{"Here": true})
		e.selects(table.Query{}, "owners/ann")
	}},
	// Of groups that change the same version, one takes effect, and all of it.
	{"GroupsRace", func(e *env) {
		etag := e.insert(ann, nil)
		for round := range 5 {
			row := func(i int) table.Key { return key("owners", fmt.Sprintf("%d in round %d", i, round)) }
			fresh := make([]table.ETag, 6)
			won := e.race(len(fresh), table.ErrPreconditionFailed, "apply", func(i int) error {
				etags, err := e.s.Apply(e.Context(), []table.Change{
					table.Inserting(table.Entity{Key: row(i)}),
					table.Updating(table.Entity{Key: ann, Properties: properties{"Writer": int32(i)}, ETag: etag}),
				})
				if err == nil {
					fresh[i] = etags[1]
				}
				return err
			})
			if won != 1 {
				e.Fatalf("%d groups for the same version have taken effect", won)
			}
			for i, version := range fresh {
				if version == "" {
					e.hasNot(row(i))
					continue
				}
				e.get(row(i))
				e.has(ann, version, properties{"Writer": int32(i)})
			}
			etag = e.get(ann).ETag
		}
	}},
}

var versionTests = []test{
	// This is the race of two clients that have read the same version.
	{"OfTwoWritersTheSecondFails", func(e *env) {
		etag := e.insert(ann, properties{"Age": int32(30)})
		one, other := e.get(ann), e.get(ann)
		if one.ETag != etag || other.ETag != etag {
			e.Errorf("the versions are %q and %q, and the insert returned %q", one.ETag, other.ETag, etag)
		}
		won := e.update(ann, one.ETag, properties{"Age": int32(31)})
		got, err := e.s.Update(e.Context(), table.Entity{Key: ann, Properties: properties{"Age": int32(32)}, ETag: other.ETag})
		e.is(err, table.ErrPreconditionFailed, "update", ann)
		if got != "" {
			e.Errorf("an update that failed returned the version %q", got)
		}
		e.is(e.s.Delete(e.Context(), ann, other.ETag), table.ErrPreconditionFailed, "delete", ann)
		e.has(ann, won, properties{"Age": int32(31)})
	}},
	// The loser does the whole operation again: read, change, write.
	{"ALoserReadsAgainAndWins", func(e *env) {
		stale := e.insert(ann, properties{"Age": int32(30)})
		e.update(ann, stale, properties{"Age": int32(31)})
		_, err := e.s.Update(e.Context(), table.Entity{Key: ann, Properties: properties{"Age": int32(31)}, ETag: stale})
		e.is(err, table.ErrPreconditionFailed, "update", ann)
		now := e.get(ann)
		age, _ := now.Properties["Age"].(int32)
		now.Properties["Age"] = age + 1
		fresh, err := e.s.Update(e.Context(), now)
		e.ok(err)
		e.has(ann, fresh, properties{"Age": int32(32)})
		e.is(e.s.Delete(e.Context(), ann, now.ETag), table.ErrPreconditionFailed, "delete", ann)
		e.ok(e.s.Delete(e.Context(), ann, fresh))
		e.hasNot(ann)
	}},
	{"AnyReplacesAndDeletesEveryVersion", func(e *env) {
		first := e.insert(ann, properties{"Age": int32(30)})
		e.update(ann, first, properties{"Age": int32(31)})
		last := e.update(ann, table.Any, properties{"Age": int32(32)})
		e.has(ann, last, properties{"Age": int32(32)})
		for range 3 { // nobody has read in between
			last = e.update(ann, table.Any, properties{"Age": int32(33)})
		}
		e.has(ann, last, properties{"Age": int32(33)})
		e.ok(e.s.Delete(e.Context(), ann, table.Any))
		e.hasNot(ann)
	}},
	// A version never comes back, whether the entity is written as it was or deleted in
	// between.
	{"EveryChangeMakesANewVersion", func(e *env) {
		p := properties{"Name": "Ann"}
		etag := e.insert(ann, p)
		seen := map[table.ETag]bool{etag: true}
		is := func(fresh table.ETag) {
			e.Helper()
			if seen[fresh] {
				e.Errorf("the version %q came back", fresh)
			}
			seen[fresh] = true
			etag = fresh
		}
		for range 5 {
			is(e.update(ann, etag, p))
			is(e.update(ann, table.Any, p))
			stale := etag
			e.ok(e.s.Delete(e.Context(), ann, etag))
			is(e.insert(ann, p))
			e.is(errorOf(e.s.Update(e.Context(), table.Entity{Key: ann, ETag: stale})), table.ErrPreconditionFailed, "update", ann)
			etags, err := e.s.Apply(e.Context(), []table.Change{table.Updating(table.Entity{Key: ann, Properties: p, ETag: etag})})
			e.ok(err)
			is(etags[0])
		}
		e.has(ann, etag, p)
	}},
	{"OfManyWritersOfAVersionOneWins", func(e *env) {
		etag := e.insert(ann, nil)
		for range 10 {
			fresh := make([]table.ETag, 8)
			won := e.race(len(fresh), table.ErrPreconditionFailed, "update", func(i int) (err error) {
				fresh[i], err = e.s.Update(e.Context(), table.Entity{Key: ann, Properties: properties{"Writer": int32(i)}, ETag: etag})
				return err
			})
			if won != 1 {
				e.Fatalf("%d writers of the same version have won", won)
			}
			for i, version := range fresh {
				if version != "" {
					e.has(ann, version, properties{"Writer": int32(i)})
					etag = version
				}
			}
		}
	}},
	{"OfManyInsertsOneSucceeds", func(e *env) {
		for range 10 {
			won := e.race(8, table.ErrExists, "insert", func(int) error {
				_, err := e.s.Insert(e.Context(), table.Entity{Key: ann})
				return err
			})
			if won != 1 {
				e.Errorf("%d inserts of the same entity have succeeded", won)
			}
			won = e.race(8, table.ErrMissing, "delete", func(int) error { return e.s.Delete(e.Context(), ann, table.Any) })
			if won != 1 {
				e.Errorf("%d deletions of the same entity have succeeded", won)
			}
		}
	}},
	// Writers count in one entity, from its insertion on. In each round all
	// of them have read the same version before the first one writes.
	{"ManyWritersLoseNoChange", func(e *env) {
		const writers, rounds = 5, 10
		for range rounds {
			var all, reading sync.WaitGroup
			reading.Add(writers) // before the first one can wait
			for range writers {
				read := sync.OnceFunc(reading.Done)
				all.Go(func() {
					defer read()
					e.count(func() { read(); reading.Wait() })
				})
			}
			all.Wait()
		}
		if n := e.get(ann).Int("N"); n != writers*rounds {
			e.Errorf("%d changes are %d in the entity", writers*rounds, n)
		}
	}},
}

// race runs the functions at once and returns how many had no error. The others must have one of the kind.
func (e *env) race(n int, kind error, op string, act func(i int) error) (winners int) {
	e.Helper()
	var won atomic.Int64
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			if err := act(i); err != nil {
				e.is(err, kind, op, ann)
				return
			}
			won.Add(1)
		})
	}
	close(start)
	all.Wait()
	return int(won.Load())
}

// count adds 1 to what an entity counts. It calls between after each read and before the write.
func (e *env) count(between func()) {
	_, err := table.Modify(e.Context(), e.s, ann, func(counter *table.Entity) error {
		counter.Properties["N"] = counter.Int("N") + 1
		between()
		return nil
	}, &table.ModifyOptions{Attempts: 1000})
	if err != nil {
		e.Error(err)
	}
}
