package tabletest

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/table"
)

var versionTests = []test{
	{"OfTwoWritersTheSecondFails", secondWriterFails},
	{"ALoserReadsAgainAndWins", loserReadsAgain},
	{"AnyReplacesAndDeletesEveryVersion", anyReplaces},
	{"EveryChangeMakesANewVersion", everyChangeIsNew},
	{"OfManyWritersOfAVersionOneWins", oneWriterWins},
	{"OfManyInsertsOneSucceeds", oneInsertSucceeds},
	{"ManyWritersLoseNoChange", noChangeIsLost},
}

// secondWriterFails is the race of two clients that have read the same version.
func secondWriterFails(e *env) {
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
}

// loserReadsAgain does the whole operation again: read, change, write.
func loserReadsAgain(e *env) {
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
}

func anyReplaces(e *env) {
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
}

// everyChangeIsNew: a version never comes back, whether the entity is written as it was or deleted in between.
func everyChangeIsNew(e *env) {
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
		_, err := e.s.Update(e.Context(), table.Entity{Key: ann, ETag: stale})
		e.is(err, table.ErrPreconditionFailed, "update", ann)
		etags, err := e.s.Apply(e.Context(), []table.Change{table.Updating(table.Entity{Key: ann, Properties: p, ETag: etag})})
		e.ok(err)
		is(etags[0])
	}
	e.has(ann, etag, p)
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

func oneWriterWins(e *env) {
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
}

func oneInsertSucceeds(e *env) {
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
}

// noChangeIsLost has writers that count in one entity, from its insertion on. In each round all of them have read the
// same version before the first one writes.
func noChangeIsLost(e *env) {
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
