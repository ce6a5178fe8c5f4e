package filetable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// waitingCommit runs changes that all wait when the goroutine that commits begins, and returns how many commits that took.
func waitingCommit(t *testing.T, db *DB, changes ...func()) int {
	t.Helper()
	before := commits(t, db)
	var all sync.WaitGroup
	for _, change := range changes {
		all.Go(change)
	}
	synctest.Wait() // until all of them wait
	db.committer.Go(db.commitForever)
	all.Wait()
	synctest.Wait() // for a commit whose caller has left
	return commits(t, db) - before
}

// unstarted opens a file without the goroutine that commits.
func unstarted(t *testing.T) *DB {
	t.Helper()
	path := scratch(t)
	db, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, db) })
	return db
}

func TestConcurrentChangesShareACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := unstarted(t)
		s := tableOf(t, db, "Channels")
		var changes []func()
		for i := range 64 {
			changes = append(changes, func() { inserted(t, s, entity("p", fmt.Sprint(i), "")) })
		}
		if got := waitingCommit(t, db, changes...); got != 1 {
			t.Errorf("64 changes that wait: got %d commits, want 1", got)
		}
		begun := time.Now()
		before := commits(t, db)
		inserted(t, s, entity("q", "", ""))
		if got := commits(t, db) - before; got != 1 || time.Since(begun) > 0 {
			t.Errorf("a change alone: got %d commits in %v, want 1 at once", got, time.Since(begun))
		}
	})
}

// TestAFailedChangeFailsAlone: changes and groups whose precondition fails do not undo the others of their commit, and
// nothing of such a group is made.
func TestAFailedChangeFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := unstarted(t)
		s := tableOf(t, db, "Channels")
		var mu sync.Mutex
		won := 0
		var changes []func()
		for i := range 20 {
			changes = append(changes, func() {
				group := []table.Change{table.Inserting(entity("p", fmt.Sprintf("of %02d", i), "")), table.Inserting(entity("p", "the same", ""))}
				_, err := s.Apply(context.Background(), group)
				mu.Lock()
				defer mu.Unlock()
				switch failed := (*table.Error)(nil); {
				case err == nil:
					won++
				case !errors.Is(err, table.ErrExists) || !errors.As(err, &failed) || failed.Key.Row != "the same" || failed.Op != "apply" || failed.Table != "Channels":
					t.Errorf("group %d: got %v, want that the same exists", i, err)
				}
			}, func() { inserted(t, s, entity("q", fmt.Sprint(i), "")) })
		}
		if got := waitingCommit(t, db, changes...); got != 1 || won != 1 {
			t.Errorf("got %d commits and %d groups, want 1 of each", got, won)
		}
		for partition, want := range map[string]int{"p": 2, "q": 20} {
			if p, err := s.Query(t.Context(), table.Query{Partition: partition}); err != nil || len(p.Entities) != want {
				t.Errorf("%s: got %d entities, %v, want %d", partition, len(p.Entities), err, want)
			}
		}
		before := commits(t, db)
		if _, err := s.Insert(t.Context(), entity("q", "0", "")); !errors.Is(err, table.ErrExists) || commits(t, db) != before {
			t.Errorf("a change that fails alone: got %v and %d commits, want none", err, commits(t, db)-before)
		}
	})
}

// TestAChangeWhoseCallerLeft: a change that no commit has taken is not made; the caller gets the cause.
func TestAChangeWhoseCallerLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, why := unstarted(t), errors.New("the worker stops")
		s := tableOf(t, db, "Channels")
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		var waiting sync.WaitGroup
		waiting.Go(func() { _, err = s.Insert(ctx, entity("p", "", "")) })
		synctest.Wait()
		cancel(why)
		waiting.Wait()
		if got := waitingCommit(t, db); got != 0 || !errors.Is(err, why) {
			t.Errorf("got %d commits and %v, want none and the cause", got, err)
		}
	})
}

// TestACallerLeavesACommit: a call ends with its context while the disk is slow, and the change is made later.
func TestACallerLeavesACommit(t *testing.T) {
	db, why := opened(t, scratch(t)), errors.New("too slow")
	s := tableOf(t, db, "Channels")
	tx, err := db.tree.Begin(true) // the commit waits for it
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 30*time.Millisecond, why)
	defer cancel()
	if _, err := s.Insert(ctx, entity("p", "", "")); !errors.Is(err, why) {
		t.Errorf("got %v, want the cause", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	inserted(t, s, entity("q", "", "")) // in a later commit
	if _, err := s.Get(t.Context(), table.Key{Partition: "p"}); err != nil {
		t.Error(err)
	}
}

// endedAfter is a context that ends after it was asked some times.
type endedAfter struct {
	context.Context
	left *int
}

func (c endedAfter) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestAQueryEndsWithItsContext: also between two entities.
func TestAQueryEndsWithItsContext(t *testing.T) {
	db := opened(t, scratch(t))
	s := tableOf(t, db, "Channels")
	for i := range 10 {
		inserted(t, s, entity("p", fmt.Sprint(i), ""))
	}
	left := 5
	if p, err := s.Query(endedAfter{t.Context(), &left}, table.Query{}); err == nil || len(p.Entities) > 0 || left < -3 {
		t.Errorf("got %d entities, %v, and %d looks at the context after its end", len(p.Entities), err, -left)
	}
}

// TestCloseFailsWhatNoCommitHasTaken and waits for nothing else.
func TestCloseFailsWhatNoCommitHasTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := unstarted(t)
		s := tableOf(t, db, "Channels")
		var err error
		var waiting sync.WaitGroup
		waiting.Go(func() { _, err = s.Insert(t.Context(), entity("p", "", "")) })
		synctest.Wait()
		closed(t, db)
		if waiting.Wait(); !errors.Is(err, ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
	})
}

// TestEntitiesBelongToTheirCaller: a caller that left may change what it passed while it is committed.
func TestEntitiesBelongToTheirCaller(t *testing.T) {
	db := opened(t, scratch(t))
	s := tableOf(t, db, "Channels")
	for i := range 50 {
		e := entity("p", fmt.Sprint(i), "before")
		bytes := []byte("before")
		e.Properties["Bytes"] = bytes
		ctx, cancel := context.WithCancel(t.Context())
		var inserting sync.WaitGroup
		inserting.Go(cancel)
		_, err := s.Insert(ctx, e)
		e.Properties["Text"], bytes[0] = "after", 'X' // the race detector sees a commit that still reads it
		inserting.Wait()
		got, missing := s.Get(t.Context(), e.Key)
		if err == nil && missing != nil || missing == nil && (got.Text("Text") != "before" || string(got.Properties["Bytes"].([]byte)) != "before") {
			t.Errorf("got %v, %v after %v", got, missing, err)
		}
	}
}

// TestReadersAndWritersTogether: counters of two entities that groups change together are never seen apart, and no
// increment is lost.
func TestReadersAndWritersTogether(t *testing.T) {
	db := opened(t, scratch(t))
	s := tableOf(t, db, "Channels")
	count := func(row string, n int64) table.Entity {
		return table.Entity{Key: table.Key{Partition: "p", Row: row}, Properties: map[string]any{"N": n}}
	}
	inserted(t, s, count("a", 0))
	inserted(t, s, count("b", 0))
	const callers, each = 8, 30
	var all, readers sync.WaitGroup
	stop := make(chan struct{})
	readers.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			p, err := s.Query(t.Context(), table.Query{Partition: "p"})
			if err != nil || len(p.Entities) != 2 || p.Entities[0].Int("N") != p.Entities[1].Int("N") {
				t.Errorf("got %v, %v, want two equal counters", p, err)
				return
			}
		}
	})
	for range callers {
		all.Go(func() {
			for done := 0; done < each; {
				p, err := s.Query(t.Context(), table.Query{Partition: "p"})
				if err != nil {
					t.Error(err)
					return
				}
				var group []table.Change
				for _, e := range p.Entities {
					e.Properties["N"] = e.Int("N") + 1
					group = append(group, table.Updating(e))
				}
				switch _, err := s.Apply(t.Context(), group); {
				case err == nil:
					done++
				case !errors.Is(err, table.ErrPreconditionFailed):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	close(stop)
	readers.Wait()
	if e, err := s.Get(t.Context(), table.Key{Partition: "p", Row: "a"}); err != nil || e.Int("N") != callers*each {
		t.Errorf("got %v, %v, want %d", e, err, callers*each)
	}
}
