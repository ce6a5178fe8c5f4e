package filetable

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/boltfile"
	"github.com/millrace/millrace/table"
)

// counted has the waits of a DB for the disk counted.
func counted(db *DB) *int {
	waits, wait := new(int), db.sync
	db.sync = func() error { *waits++; return wait() }
	return waits
}

// unlooped opens a file whose commits the test makes itself.
func unlooped(t *testing.T, path string) *DB {
	t.Helper()
	db, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func commitOf(t *testing.T, db *DB, changes ...table.Change) {
	t.Helper()
	outcomes, err := db.commit([]*request{newRequest([]byte("table channels"), changes)})
	if err != nil || outcomes[0].err != nil {
		t.Fatal(err, outcomes)
	}
}

// TestACommitWaitsForTheDiskOnce: bbolt itself waits for nothing. A commit of very many pages waits twice.
func TestACommitWaitsForTheDiskOnce(t *testing.T) {
	db := unlooped(t, scratch(t))
	defer closed(t, db)
	waits := counted(db)
	for i := range 300 {
		before := *waits
		commitOf(t, db, table.Inserting(entity("p", fmt.Sprintf("%03d", i), strings.Repeat("x", 500))))
		if got := *waits - before; got != 1 {
			t.Fatalf("insert %d: got %d waits, want 1", i, got)
		}
	}
	before := *waits
	commitOf(t, db, table.Deleting(table.Key{Partition: "p", Row: "000"}, table.Any))
	if got := *waits - before; got != 1 {
		t.Errorf("a deletion: got %d waits, want 1", got)
	}
	many := make([]table.Change, 400)
	for i := range many {
		many[i] = table.Inserting(entity("q", fmt.Sprintf("%03d", i), strings.Repeat("x", 30_000)))
	}
	commitOf(t, db, many[:100]...) // allocates space, which waits too
	if err := db.reserve.ensure(db.reserve.allocated, 0); err != nil {
		t.Fatal(err)
	}
	before = *waits
	commitOf(t, db, many[100:]...)
	if got := *waits - before; got != 2 {
		t.Errorf("a commit of more than 300 pages: got %d waits, want 2", got)
	}
	if !db.tree.NoSync {
		t.Error("bbolt waits too")
	}
}

// TestAPowerCutLeavesACommitOrTheOneBefore: of the blocks that a commit writes before it waits, any may reach the disk and
// any may not. The commit is there completely, or not at all.
func TestAPowerCutLeavesACommitOrTheOneBefore(t *testing.T) {
	const block = 512 // a disk writes no less
	path := scratch(t)
	db := unlooped(t, path)
	var onDisk []byte // at the last wait
	wait := db.sync
	found := map[string]int{}
	check := func(image []byte, confirmed, begun map[string]string) {
		t.Helper()
		cut := scratch(t)
		writeFile(t, cut, image)
		after, err := Open(cut, nil)
		if err != nil {
			t.Fatalf("after a power cut: %v", err)
		}
		defer closed(t, after)
		got := map[string]string{}
		for e, err := range table.All(t.Context(), tableOf(t, after, "channels"), table.Query{}) {
			if err != nil {
				t.Fatalf("after a power cut: %v", err)
			}
			got[e.Row] = e.Text("Text")
		}
		switch fmt.Sprint(got) {
		case fmt.Sprint(confirmed):
			found["before"]++
		case fmt.Sprint(begun):
			found["after"]++
		default:
			t.Fatalf("got %d entities, which are neither the %d confirmed ones nor those of the next commit", len(got), len(confirmed))
		}
	}
	confirmed := map[string]string{}
	onDisk = readFile(t, path)
	onDisk = append(onDisk, make([]byte, (block-len(onDisk)%block)%block)...)
	for i := range 120 {
		begun := maps.Clone(confirmed)
		row, text := fmt.Sprintf("%02d", rand.IntN(60)), strings.Repeat(fmt.Sprintf("%06d", i), rand.IntN(200))
		e := entity("p", row, text)
		e.ETag = table.Any
		change := table.Inserting(e)
		if _, is := begun[row]; is {
			change = table.Updating(e)
		}
		begun[row] = text
		if len(confirmed) > 20 && confirmed[row] != "" && rand.IntN(2) == 0 {
			change = table.Deleting(e.Key, table.Any)
			delete(begun, row)
		}
		db.sync = func() error {
			written := readFile(t, path)
			written = append(written, make([]byte, (block-len(written)%block)%block)...)
			before := append(bytes.Clone(onDisk), make([]byte, max(0, len(written)-len(onDisk)))...)
			var differ []int
			for at := 0; at < len(written); at += block {
				if !bytes.Equal(before[at:at+block], written[at:at+block]) {
					differ = append(differ, at)
				}
			}
			torn := func(reached func(k int) bool) {
				image := bytes.Clone(before)
				for k, at := range differ {
					if reached(k) {
						copy(image[at:at+block], written[at:at+block])
					}
				}
				check(image, confirmed, begun)
			}
			if i%10 == 0 {
				lost := rand.IntN(len(differ))
				torn(func(k int) bool { return k != lost }) // all but one
				torn(func(k int) bool { return k == lost })
				for range 3 {
					torn(func(int) bool { return rand.IntN(4) > 0 })
				}
			}
			onDisk = written
			return wait()
		}
		commitOf(t, db, change)
		confirmed = begun
		if i%10 == 0 {
			check(onDisk, confirmed, confirmed)
		}
	}
	db.sync = wait
	closed(t, db)
	t.Logf("found: %v", found)
	if found["before"] == 0 {
		t.Error("no power cut undid a commit")
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
		if i < 30 || rand.IntN(3) == 0 {
			var group []table.Change
			for range 1 + rand.IntN(40) {
				group = append(group, table.Inserting(entity("p", fmt.Sprintf("%06d", rows), strings.Repeat("x", rand.IntN(3000)))))
				rows++
			}
			commitOf(t, db, group...)
		} else { // pages are merged, and the tree gets lower
			first, requests := rand.IntN(rows), []*request(nil)
			for row := first; row < min(rows, first+80); row++ { // some are missing, and fail alone
				requests = append(requests, newRequest([]byte("table channels"), []table.Change{table.Deleting(table.Key{Partition: "p", Row: fmt.Sprintf("%06d", row)}, table.Any)}))
			}
			if _, err := db.commit(requests); err != nil {
				t.Fatal(err)
			}
		}
		after := readFile(t, path)
		m := newestMeta(t, after)
		seal, err := readSeal(bytes.NewReader(after), m)
		if err != nil || seal == nil || !complete(bytes.NewReader(after), m, seal) {
			t.Fatalf("commit %d has no right seal: %v", m.Commit, err)
		}
		size := int(m.PageSize)
		if pagesOf(seal) == 0 {
			continue // it had too many, and waited twice
		}
		checked++
		sealed := map[int]bool{}
		pages, _ := sealedPages(seal)
		for _, page := range pages {
			b, err := boltfile.ReadPage(bytes.NewReader(after), m, page)
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
