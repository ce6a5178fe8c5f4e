package filetable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/smalldisktest"
	"github.com/millrace/millrace/table"
)

// TestAFullDiskLosesNothing: changes fail with ErrUnavailable, what was confirmed is there, deletions go on and make room.
func TestAFullDiskLosesNothing(t *testing.T) {
	path := filepath.Join(smalldisktest.Mount(t, 12), "tables.db")
	db := opened(t, path)
	s := tableOf(t, db, "Channels")
	kept, saidFull := map[string]string{}, false
	fill := func() (n int) {
		for ; ; n++ {
			row := fmt.Sprintf("%08x", rand.Uint32())
			e := entity("p", row, strings.Repeat(row, rand.IntN(4000)))
			_, err := s.Insert(t.Context(), e)
			if err == nil {
				kept[row] = e.Text("Text")
				continue
			}
			if !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), syscall.ENOSPC.Error()) || !strings.Contains(err.Error(), path) {
				t.Fatalf("full: got %v, want ErrUnavailable, no space and the path", err)
			}
			if n == 0 {
				t.Log(err)
			}
			saidFull = saidFull || strings.Contains(err.Error(), "the disk is full")
			return n
		}
	}
	check := func() {
		t.Helper()
		found := 0
		for e, err := range table.All(t.Context(), s, table.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if text, is := kept[e.Row]; !is || text != e.Text("Text") {
				t.Errorf("row %s was never confirmed, was deleted, or is another: %v", e.Row, is)
			}
			found++
		}
		if found != len(kept) {
			t.Errorf("got %d entities, want %d", found, len(kept))
		}
	}
	for round := range 4 {
		if n := fill(); n == 0 {
			t.Errorf("round %d: nothing fits, although entities were deleted", round)
		}
		check()
		if round == 2 { // opened again on the full disk
			closed(t, db)
			db = opened(t, path)
			s = tableOf(t, db, "Channels")
			check()
		}
		for row := range kept { // a mark may be set on the full disk
			e := entity("p", row, kept[row])
			e.Properties["Deleting"], e.ETag = true, table.Any
			if _, err := s.Update(t.Context(), e); err != nil {
				t.Fatalf("update on a full disk: %v", err)
			}
			break
		}
		for row := range kept {
			if err := s.Delete(t.Context(), table.Key{Partition: "p", Row: row}, table.Any); err != nil {
				t.Fatalf("delete on a full disk: %v", err)
			}
			if delete(kept, row); len(kept) < 50 {
				break
			}
		}
	}
	if !saidFull {
		t.Error("no error said that the disk is full")
	}
	closed(t, db)
	db = opened(t, path)
	s = tableOf(t, db, "Channels")
	check()
}

// TestAFileIsNotMadeInPart: without room for a new file there is none.
func TestAFileIsNotMadeInPart(t *testing.T) {
	dir := smalldisktest.Mount(t, 1)
	writeFile(t, filepath.Join(dir, "fills"), make([]byte, 1<<20-8<<10))
	_, err := Open(filepath.Join(dir, "tables.db"), nil)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want no space", err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "tables*")); err != nil || len(left) > 0 {
		t.Errorf("got the files %v, %v, want none", left, err)
	}
}
