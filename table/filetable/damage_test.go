package filetable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/millrace/millrace/internal/killtest"
	"github.com/millrace/millrace/table"
)

// openVariable makes the test binary open a file and say what came of it.
const openVariable = "FILETABLE_TEST_OPEN"

func openOnce(path string) string {
	db, err := Open(path, &Options{Wait: -1})
	if err == nil {
		err = db.Close()
	}
	switch {
	case err == nil:
		return "opened"
	case errors.Is(err, ErrLocked):
		return "locked"
	}
	return err.Error()
}

func openInProcess(t *testing.T, path string) string {
	t.Helper()
	output := make(chan string, 1)
	p := killtest.Start(t, output, openVariable+"="+path)
	said := <-output
	p.Kill(t)
	return said
}

func TestAFileHasOneUser(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	if _, err := Open(path, &Options{Wait: -1}); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) {
		t.Errorf("second Open of this process: got %v, want ErrLocked and the path", err)
	}
	begun := time.Now()
	if _, err := Open(path, &Options{Wait: 20 * time.Millisecond}); !errors.Is(err, ErrLocked) || time.Since(begun) < 20*time.Millisecond {
		t.Errorf("second Open of this process: got %v after %v, want ErrLocked", err, time.Since(begun))
	}
	if said := openInProcess(t, path); said != "locked" {
		t.Errorf("Open in another process: got %s, want locked", said)
	}
	closed(t, db)
	if said := openInProcess(t, path); said != "opened" {
		t.Errorf("Open in another process after Close: got %s, want opened", said)
	}
}

// TestOpenWaitsForAProcessThatEnds: as in a restart.
func TestOpenWaitsForAProcessThatEnds(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	ended := make(chan error)
	go func() { ended <- db.Close() }()
	second, err := Open(path, &Options{Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, second)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// filled returns a file with two tables of some pages, closed.
func filled(t *testing.T) (path string, content []byte) {
	t.Helper()
	path = scratch(t)
	db := opened(t, path)
	for _, name := range []string{"Channels", "Blogs"} {
		s := tableOf(t, db, name)
		for i := range 6 {
			var group []table.Change
			for j := range 50 {
				group = append(group, table.Inserting(entity("p", fmt.Sprintf("%d-%d", i, j), strings.Repeat("x", 10*j))))
			}
			if _, err := s.Apply(t.Context(), group); err != nil {
				t.Fatal(err)
			}
		}
	}
	inserted(t, tableOf(t, db, "Small"), entity("p", "r", "an inline bucket"))
	inserted(t, tableOf(t, db, "Large"), entity("p", "r", strings.Repeat("x", 30_000)))
	closed(t, db)
	content = withoutReserve(t, readFile(t, path))
	writeFile(t, path, content)
	return path, content
}

// TestWhatIsNoFileOfTablesIsRefused: and not changed.
func TestWhatIsNoFileOfTablesIsRefused(t *testing.T) {
	path, content := filled(t)
	foreign := filepath.Join(filepath.Dir(path), "foreign.db")
	changed(t, foreign, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"empty":                 {nil, "is empty"},
		"text":                  {[]byte(strings.Repeat("not ours", 4096)), "not one of tables"},
		"short text":            {[]byte("not ours"), "not one of tables"},
		"zeros":                 {make([]byte, 1<<16), "not one of tables"},
		"another program's":     {readFile(t, foreign), "of another program"},
		"truncated":             {content[:len(content)/2], "truncated"},
		"truncated to its meta": {content[:2*os.Getpagesize()], "truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			path := scratch(t)
			writeFile(t, path, c.content)
			_, err := Open(path, nil)
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want ErrCorrupt, %q and the path", err, c.says)
			}
			t.Log(err)
			if after := readFile(t, path); !bytes.Equal(after, c.content) {
				t.Error("the file was changed")
			}
		})
	}
	if _, err := Open(filepath.Dir(path), nil); err == nil {
		t.Error("a folder was opened")
	} else {
		t.Log(err)
	}
	if _, err := Open(filepath.Join(path, "below"), nil); err == nil {
		t.Error("a file below a file was made")
	} else {
		t.Log(err)
	}
}

// TestAFileOfALaterVersionIsRefused: and not changed.
func TestAFileOfALaterVersionIsRefused(t *testing.T) {
	path, _ := filled(t)
	changed(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket(aboutBucket)
		if _, err := b.CreateBucket([]byte("within")); err != nil { // which this version does not know
			return err
		}
		return b.Put(formatKey, number(formatKey, format+1))
	})
	before := readFile(t, path)
	_, err := Open(path, nil)
	if !errors.Is(err, ErrNewer) || !strings.Contains(err.Error(), "its format is 3") {
		t.Errorf("got %v, want ErrNewer", err)
	}
	t.Log(err)
	if after := readFile(t, path); !bytes.Equal(after, before) {
		t.Error("the file was changed")
	}
}

// TestADamagedPageIsFound: a file with any page of the tree damaged is refused, or all that can be read of it is right.
func TestADamagedPageIsFound(t *testing.T) {
	path, content := filled(t)
	page := os.Getpagesize()
	refused, opened, failed := 0, 0, 0
	for at := 0; at < len(content); at += page {
		for _, damage := range []func(b []byte){
			func(b []byte) { clear(b) },
			func(b []byte) { clear(b[:16]) },
			func(b []byte) { copy(b, content[2*page:3*page]) },
			func(b []byte) { b[rand.IntN(64)] ^= 1 << rand.IntN(8) },
			func(b []byte) { b[rand.IntN(page)] ^= 1 << rand.IntN(8) },
			func(b []byte) {
				for i := range b[:200] {
					b[i] = byte(rand.Uint32())
				}
			},
		} {
			if at > 2*page && rand.IntN(3) > 0 { // a third is enough
				continue
			}
			damaged := bytes.Clone(content)
			damage(damaged[at : at+page])
			writeFile(t, path, damaged)
			db, err := Open(path, nil)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Errorf("page %d: got %v, want ErrCorrupt", at/page, err)
				}
				refused++
				continue
			}
			opened++
			if !readsRight(t, db) {
				failed++
			}
			closed(t, db)
		}
	}
	t.Logf("%d refused, %d opened, of which %d have a damaged record", refused, opened, failed)
	if refused == 0 || opened == 0 || failed == 0 {
		t.Error("want some of each")
	}
}

// TestATreeOfTwoTablesIsRefused: a page that two tables have would be freed by one of them.
func TestATreeOfTwoTablesIsRefused(t *testing.T) {
	path, _ := filled(t)
	page := map[string][]byte{}
	changed(t, path, func(tx *bolt.Tx) error {
		for _, name := range []string{"table channels", "table blogs"} {
			page[name] = binary.NativeEndian.AppendUint64(nil, uint64(tx.Bucket([]byte(name)).Root()))
		}
		return nil
	})
	content := readFile(t, path) // with that commit
	m := newestMeta(t, content)
	root := content[m.Root*uint64(m.PageSize):][:m.PageSize]
	at := bytes.Index(root, append([]byte("table channels"), page["table channels"]...))
	if at < 0 {
		t.Fatal("the root does not have the table")
	}
	copy(root[at+len("table channels"):], page["table blogs"])
	writeFile(t, path, content)
	if _, err := Open(path, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "used twice") {
		t.Errorf("got %v, want ErrCorrupt and a page that is used twice", err)
	}
}

// readsRight reads all that filled has written, and returns whether there was no error. What is read without one is right.
func readsRight(t *testing.T, db *DB) bool {
	t.Helper()
	for _, name := range []string{"Channels", "Blogs"} {
		found := 0
		for e, err := range table.All(t.Context(), tableOf(t, db, name), table.Query{}) {
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Errorf("got %v, want ErrCorrupt", err)
				}
				return false
			}
			found++
			var i, j int
			if _, err := fmt.Sscanf(e.Row, "%d-%d", &i, &j); err != nil || e.Text("Text") != strings.Repeat("x", 10*j) {
				t.Errorf("got %v, which nobody has written", e)
			}
		}
		if found != 300 && found != 0 && found%50 != 0 { // an older commit, after a damaged meta page
			t.Errorf("%s has %d entities", name, found)
		}
	}
	return true
}

// TestADamagedRecordFailsAlone: its readers learn which it is, the others are available, and it can be replaced and deleted.
func TestADamagedRecordFailsAlone(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	s := tableOf(t, db, "Channels")
	for _, row := range []string{"a", "b", "c"} {
		inserted(t, s, entity("p", row, row))
	}
	closed(t, db)
	b, c := table.Key{Partition: "p", Row: "b"}, table.Key{Partition: "p", Row: "c"}
	changed(t, path, func(tx *bolt.Tx) error {
		bucket := tx.Bucket([]byte("table channels"))
		return errors.Join(bucket.Put(keyOf(b), bytes.Clone(bucket.Get(keyOf(c)))), // of another key
			bucket.Put(keyOf(c), []byte{1, 2, 3}))
	})
	s = tableOf(t, opened(t, path), "Channels")
	_, get := s.Get(t.Context(), b)
	_, query := s.Query(t.Context(), table.Query{})
	_, insert := s.Insert(t.Context(), entity("p", "b", ""))
	_, apply := s.Apply(t.Context(), []table.Change{table.Inserting(entity("p", "d", "")), table.Inserting(entity("p", "b", ""))})
	for op, err := range map[string]error{"get": get, "query": query, "insert": insert, "apply": apply, "delete": s.Delete(t.Context(), b, "W/1")} {
		failed := (*table.Error)(nil)
		if !errors.Is(err, ErrCorrupt) || !errors.As(err, &failed) || failed.Key != b || failed.Op != op || table.Transient(err) {
			t.Errorf("%s: got %v, want ErrCorrupt and the key", op, err)
		}
		t.Log(err)
	}
	if _, err := s.Get(t.Context(), table.Key{Partition: "p", Row: "a"}); err != nil {
		t.Errorf("another entity: %v", err)
	}
	e := entity("p", "b", "repaired")
	e.ETag = table.Any
	if _, err := s.Update(t.Context(), e); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), c, table.Any); err != nil {
		t.Error(err)
	}
	if p, err := s.Query(t.Context(), table.Query{}); err != nil || len(p.Entities) != 2 || p.Entities[1].Text("Text") != "repaired" {
		t.Errorf("after the repair: got %v, %v", p.Entities, err)
	}
}
