package filetable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/table"
)

// TestARestartKeepsEverything: entities, their versions, and the numbers of versions.
func TestARestartKeepsEverything(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	s := tableOf(t, db, "Channels")
	e := table.Entity{Key: table.Key{Partition: "p", Row: "r"}, Properties: map[string]any{
		"String": "täxt", "Bytes": []byte{0, 1}, "None": []byte{}, "True": true, "False": false, "Int32": int32(-7), "Int64": int64(1) << 60,
		"Float": 0.1, "Time": time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.FixedZone("", 3600)), "GUID": table.GUID("0F8FAD5B-d9cb-469f-a165-70867728950e"),
		"First": time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC), "Last": time.Date(9999, 12, 31, 23, 59, 59, 999999900, time.UTC),
	}}
	etag := inserted(t, s, e)
	before, err := s.Get(t.Context(), e.Key)
	if err != nil {
		t.Fatal(err)
	}
	if want := e.Clone().Properties; !reflect.DeepEqual(before.Properties, want) || before.ETag != etag || time.Since(before.Modified) > time.Minute {
		t.Errorf("got %v, want %v with the version %s", before, want, etag)
	}
	closed(t, db)
	after, err := tableOf(t, opened(t, path), "channels").Get(t.Context(), e.Key)
	if err != nil || !reflect.DeepEqual(after, before) {
		t.Errorf("after a restart: got %v, %v, want %v", after, err, before)
	}
}

// TestNoVersionComesTwice: neither after a deletion, nor in another table, nor after a restart or a commit that changed
// nothing but deleted.
func TestNoVersionComesTwice(t *testing.T) {
	path, seen := scratch(t), map[table.ETag]bool{}
	for range 3 {
		db := opened(t, path)
		for _, name := range []string{"one", "two"} {
			s := tableOf(t, db, name)
			e := entity("p", "r", "")
			etag := inserted(t, s, e)
			e.ETag = etag
			updated, err := s.Update(t.Context(), e)
			if err == nil {
				err = s.Delete(t.Context(), e.Key, updated)
			}
			if err != nil || seen[etag] || seen[updated] || etag == updated {
				t.Fatalf("got the versions %s and %s, %v, after %v", etag, updated, err, seen)
			}
			seen[etag], seen[updated] = true, true
		}
		closed(t, db)
	}
}

// TestAfterCloseCallsFail: with ErrClosed, and Close again does nothing.
func TestAfterCloseCallsFail(t *testing.T) {
	db := opened(t, scratch(t))
	s, e := tableOf(t, db, "Channels"), entity("p", "r", "")
	e.ETag = table.Any
	closed(t, db)
	closed(t, db)
	_, insert := s.Insert(t.Context(), e)
	_, update := s.Update(t.Context(), e)
	_, apply := s.Apply(t.Context(), []table.Change{table.Inserting(e)})
	_, get := s.Get(t.Context(), e.Key)
	_, query := s.Query(t.Context(), table.Query{})
	for op, err := range map[string]error{"insert": insert, "update": update, "apply": apply, "get": get, "query": query, "delete": s.Delete(t.Context(), e.Key, table.Any)} {
		if !errors.Is(err, ErrClosed) || table.Transient(err) {
			t.Errorf("%s: got %v, want ErrClosed", op, err)
		}
		t.Log(err)
	}
}

// TestAReadAtTheVeryEnd: Close comes between a call and its transaction.
func TestAReadAtTheVeryEnd(t *testing.T) {
	db, err := Open(scratch(t), nil)
	if err == nil {
		err = db.tree.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // whose tree is closed
	if _, err := tableOf(t, db, "Channels").Query(t.Context(), table.Query{}); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

// TestNamesOfTables: those that Azure Tables has, and upper and lower case are the same.
func TestNamesOfTables(t *testing.T) {
	db := opened(t, scratch(t))
	for _, name := range []string{"", "ab", "1abc", "a-b", "a_b", "täbel", "Tables", "a b", "abc\n", string(make([]byte, 64))} {
		if s, err := db.Table(name); !errors.Is(err, table.ErrInvalid) || s != nil {
			t.Errorf("%q: got %v, %v, want ErrInvalid", name, s, err)
		}
	}
	inserted(t, tableOf(t, db, "Channels"), entity("p", "r", ""))
	if _, err := tableOf(t, db, "cHANNELS").Get(context.Background(), table.Key{Partition: "p", Row: "r"}); err != nil {
		t.Error(err)
	}
	if _, err := tableOf(t, db, "Channels2").Get(context.Background(), table.Key{Partition: "p", Row: "r"}); !errors.Is(err, table.ErrMissing) {
		t.Errorf("another table: got %v, want ErrMissing", err)
	}
}

// TestCloseInTheMiddle: of changes under way each was confirmed and is in the file, or failed with ErrClosed and is not.
func TestCloseInTheMiddle(t *testing.T) {
	path := scratch(t)
	kept := map[string]bool{}
	for round := range 10 {
		db := opened(t, path)
		s := tableOf(t, db, "Channels")
		var mu sync.Mutex
		var all sync.WaitGroup
		for caller := range 8 {
			all.Go(func() {
				for n := 0; ; n++ {
					e := entity("p", fmt.Sprintf("%d-%d-%d", round, caller, n), "")
					_, err := s.Insert(t.Context(), e)
					mu.Lock()
					kept[e.Row] = err == nil
					mu.Unlock()
					if err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Error(err)
						}
						_, err = s.Query(t.Context(), table.Query{})
						if !errors.Is(err, ErrClosed) {
							t.Errorf("query after Close: got %v", err)
						}
						return
					}
				}
			})
		}
		for range 20 { // readers while it closes
			if _, err := s.Query(t.Context(), table.Query{}); err != nil {
				t.Error(err)
			}
		}
		closed(t, db)
		all.Wait()
	}
	found := 0
	for e, err := range table.All(t.Context(), tableOf(t, opened(t, path), "Channels"), table.Query{}) {
		if found++; err != nil || !kept[e.Row] {
			t.Fatalf("%q is there: %v", e.Row, err)
		}
	}
	for _, confirmed := range kept {
		if confirmed {
			found--
		}
	}
	if found != 0 {
		t.Errorf("%d confirmed entities are missing", -found)
	}
}

// TestAFileIsMadeOnce: of many that make a file at the same time, none loses what another has stored in it.
func TestAFileIsMadeOnce(t *testing.T) {
	path := scratch(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			db, err := Open(path, &Options{Wait: time.Minute})
			if err != nil {
				t.Error(err)
				return
			}
			s, err := db.Table("Channels")
			if err == nil {
				_, err = s.Insert(t.Context(), entity("p", fmt.Sprint(i), ""))
			}
			if err := errors.Join(err, db.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if p, err := tableOf(t, opened(t, path), "Channels").Query(t.Context(), table.Query{}); err != nil || len(p.Entities) != 8 {
		t.Errorf("got %d entities, %v, want 8", len(p.Entities), err)
	}
	before := readFile(t, path)
	if err := create(path); err != nil || !bytes.Equal(readFile(t, path), before) {
		t.Errorf("a file that was made meanwhile was replaced: %v", err)
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
		t.Errorf("got the files %v, %v, want one", files, err)
	}
}
