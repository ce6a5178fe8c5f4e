package filetable

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/boltfile"
)

// unlooped opens a file whose commits the test makes itself.
func unlooped(t testing.TB, path string) *DB {
	t.Helper()
	db, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func committed(t testing.TB, db *DB, requests ...*request) {
	t.Helper()
	outcomes, err := db.commit(requests)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range outcomes {
		if o.err != nil {
			t.Fatal(o.err)
		}
	}
}

// counted has the waits of a DB for the disk counted.
func counted(db *DB) *int {
	waits, wait := new(int), db.sync
	db.sync = func() error { *waits++; return wait() }
	return waits
}

// TestWhatACommitCosts: how often each shape of a commit waits for the disk, and that a change of one small entity writes
// its path through the tree: the root, the root of the table, a leaf, and the meta page.
func TestWhatACommitCosts(t *testing.T) {
	for _, shape := range commitShapes {
		t.Run(shape.name, func(t *testing.T) {
			db, k := shaped(t)
			defer closed(t, db)
			requests := shape.do(k)
			waits, before := counted(db), db.tree.Stats()
			committed(t, db, requests...)
			if *waits != shape.waits {
				t.Errorf("got %d waits, want %d", *waits, shape.waits)
			}
			after := db.tree.Stats()
			pages := int(after.TxStats.GetPageAlloc()-before.TxStats.GetPageAlloc()) / db.reserve.pageSize
			if shape.pages > 0 && pages != shape.pages {
				t.Errorf("got %d pages, want %d", pages, shape.pages)
			}
			if !db.tree.NoSync {
				t.Error("bbolt waits too")
			}
		})
	}
}

// TestManyInsertsWaitOnceEach: besides the waits for more of the reserve, of which there is one in a MiB.
func TestManyInsertsWaitOnceEach(t *testing.T) {
	db := unlooped(t, scratch(t))
	defer closed(t, db)
	waits, k := counted(db), kept{}
	for i := range 1000 { // 600 KiB
		committed(t, db, k.putMany(i, 1, 500)...)
	}
	if *waits > 1002 {
		t.Errorf("1000 inserts waited %d times, want at most 1002", *waits)
	}
}

// TestOpenAndCloseWait: a file that was closed is opened without a wait. One that was not is waited for once. Close waits
// once, even without a change.
func TestOpenAndCloseWait(t *testing.T) {
	db, k := shaped(t)
	committed(t, db, k.putMany(900, 1, 100)...)
	left := readFile(t, db.path)
	waits := counted(db)
	closed(t, db)
	if *waits != 1 {
		t.Errorf("Close: got %d waits, want 1", *waits)
	}
	m := newestMeta(t, left)
	unmarked := bytes.Clone(left)
	clear(unmarked[m.MetaAt(1-m.Slot)+markAt:][:markSize])
	for _, c := range []struct {
		name  string
		file  []byte
		waits int
	}{{"marked", left, 0}, {"not marked", unmarked, 1}} {
		path := scratch(t)
		writeFile(t, path, left)
		db := unlooped(t, path)
		if _, err := db.file.WriteAt(c.file, 0); err != nil {
			t.Fatal(err)
		}
		waits := counted(db)
		if err := db.beginSeals(format); err != nil || *waits != c.waits {
			t.Errorf("%s: got %d waits, %v, want %d", c.name, *waits, err, c.waits)
		}
		closed(t, db)
	}
}

// TestTheSealOfACommitHasAllItsPages: those that the commit wrote, by comparison with the file before, and no page less.
func TestTheSealOfACommitHasAllItsPages(t *testing.T) {
	path := scratch(t)
	db := unlooped(t, path)
	defer closed(t, db)
	rows, checked := 0, 0
	for i := range 60 {
		before := readFile(t, path)
		var requests []*request
		if i < 30 || rand.IntN(3) == 0 {
			for range 1 + rand.IntN(40) {
				requests = append(requests, kept{}.put(fmt.Sprintf("%06d", rows), strings.Repeat("x", rand.IntN(3000))))
				rows++
			}
		} else { // pages are merged, and the tree gets lower
			first := rand.IntN(rows)
			for row := first; row < min(rows, first+80); row++ { // some are missing, and fail alone
				requests = append(requests, kept{}.remove(fmt.Sprintf("%06d", row)))
			}
		}
		if _, err := db.commit(requests); err != nil {
			t.Fatal(err)
		}
		after := readFile(t, path)
		m := newestMeta(t, after)
		metaPage := after[m.MetaAt(m.Slot):][:m.PageSize]
		if !isSealed(metaPage) || !isWhole(bytes.NewReader(after), m, metaPage) {
			t.Fatalf("commit %d has no right seal", m.Commit)
		}
		pages, _ := sealedPages(metaPage)
		if len(pages) == 0 {
			continue // it had too many, and waited twice
		}
		checked++
		size := int(m.PageSize)
		sealed := map[int]bool{}
		for _, page := range pages {
			b, err := boltfile.ReadPage(bytes.NewReader(after), m, page, nil)
			if err != nil {
				t.Fatal(err)
			}
			for p := range len(b) / size {
				sealed[int(page)+p] = true
			}
		}
		for page := 2; page < int(m.High); page++ {
			if old := page * size; old+size <= len(before) && bytes.Equal(before[old:old+size], after[old:old+size]) {
				continue
			}
			if !sealed[page] {
				t.Fatalf("commit %d wrote page %d, which its seal does not have", m.Commit, page)
			}
		}
	}
	if checked < 30 {
		t.Errorf("got %d seals with pages, want at least 30", checked)
	}
}

// TestDamageOfTheNewestCommit: what is told from an interruption, and what is not. Of a commit whose mark is on disk
// nothing is lost silently. That is every commit but the last one of a file that was not closed, and that one too once the
// system has written the mark.
func TestDamageOfTheNewestCommit(t *testing.T) {
	db, k := shaped(t)
	before := maps.Clone(k)
	committed(t, db, k.putMany(900, 1, 100)...)
	marked := withoutReserve(t, readFile(t, db.path))
	closed(t, db)
	m := newestMeta(t, marked)
	own, other := m.MetaAt(m.Slot), m.MetaAt(1-m.Slot)
	unmarked := bytes.Clone(marked)
	clear(unmarked[other+markAt:][:markSize])
	pages, _ := sealedPages(marked[own:][:m.PageSize])
	leaf := int64(pages[len(pages)-1]) * int64(m.PageSize)
	path := scratch(t)
	for _, c := range []struct {
		name string
		file []byte
		at   int64
		want map[string]string // nil if the file is refused
	}{
		{"root", marked, own + 40, nil},
		{"root, not marked", unmarked, own + 40, before},
		{"seal", marked, own + sealAt + 20, k},
		{"seal, not marked", unmarked, own + sealAt + 20, before},
		{"mark", marked, other + markAt + 20, k},
		{"root before", marked, other + 40, k},
		{"root before, not marked", unmarked, other + 40, k},
		{"leaf", marked, leaf + 8, nil},
		{"leaf, not marked", unmarked, leaf + 8, before},
		{"another page", unmarked, 0, nil},
	} {
		damaged := bytes.Clone(c.file)
		if c.at == 0 { // a page that the commit before has too
			c.at = otherPage(t, damaged, m, pages) + 8
		}
		damaged[c.at] ^= 1 << 6
		writeFile(t, path, damaged)
		if c.want != nil {
			if got := content(t, path, func(*DB) {}); !maps.Equal(got, c.want) {
				t.Errorf("%s: got %d entities, want %d", c.name, len(got), len(c.want))
			}
			continue
		}
		if _, err := Open(path, nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: got %v, want ErrCorrupt", c.name, err)
		} else {
			t.Log(err)
		}
		if !bytes.Equal(readFile(t, path), damaged) {
			t.Errorf("%s: the file was changed", c.name)
		}
	}
}

// otherPage returns the offset of a leaf that the newest commit has not changed.
func otherPage(t *testing.T, file []byte, m boltfile.Meta, changed []uint64) int64 {
	t.Helper()
	r, err := boltfile.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	buckets, err := r.Buckets()
	for _, b := range buckets {
		err = errors.Join(err, r.Walk(b, plain, boltfile.Stop))
	}
	if err != nil {
		t.Fatal(err)
	}
	for page := uint64(2); page < m.High; page++ {
		if b := file[page*uint64(m.PageSize):]; r.Seen(page) && b[8] == 2 && !slices.Contains(changed, page) {
			return int64(page) * int64(m.PageSize)
		}
	}
	t.Fatal("there is no such page")
	return 0
}

// TestANewestCommitWithoutASeal: it is whole only if bbolt waited for it before the file had seals.
func TestANewestCommitWithoutASeal(t *testing.T) {
	db, k := shaped(t)
	before := maps.Clone(k)
	committed(t, db, k.putMany(900, 1, 100)...)
	file := withoutReserve(t, readFile(t, db.path))
	closed(t, db)
	m := newestMeta(t, file)
	own, other := file[m.MetaAt(m.Slot):][:m.PageSize], file[m.MetaAt(1-m.Slot):][:m.PageSize]
	clear(own[rootSize:])
	clear(other[markAt:][:markSize])
	path := scratch(t)
	writeFile(t, path, file)
	if got := content(t, path, func(*DB) {}); !maps.Equal(got, before) {
		t.Errorf("got %d entities, want the %d of the commit before", len(got), len(before))
	}
	clear(other)
	writeFile(t, path, file)
	if _, err := Open(path, nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "no seal") {
		t.Errorf("without the commit before: got %v, want ErrCorrupt", err)
	}
	old, has := oldFile(t)
	m = newestMeta(t, old)
	clear(old[m.MetaAt(1-m.Slot):][:m.PageSize])
	writeFile(t, path, old)
	if got := content(t, path, func(*DB) {}); !maps.Equal(got, has) {
		t.Errorf("format 1 without the commit before: got %d entities, want %d", len(got), len(has))
	}
}
