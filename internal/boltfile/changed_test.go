package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestChangedVisitsWhatACommitWrote: by comparison of the file before with the file after, and no more than the limit.
// A damaged page, or one that does not belong there, is an error.
func TestChangedVisitsWhatACommitWrote(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tree.db")
	update := func(from, to int) (after []byte) {
		t.Helper()
		tree, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true})
		if err != nil {
			t.Fatal(err)
		}
		err = tree.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("bucket"))
			for i := from; i < to; i++ {
				err = errors.Join(err, b.Put(fmt.Appendf(nil, "%06d", i), bytes.Repeat([]byte{1}, 1000)))
			}
			return err
		})
		if err := errors.Join(err, tree.Close()); err != nil {
			t.Fatal(err)
		}
		after, err = os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return after
	}
	before := update(0, 2000)
	after := update(1000, 1001)
	newest, previous, err := ReadMetas(bytes.NewReader(after))
	if err != nil || newest.Commit != previous.Commit+1 {
		t.Fatalf("got the commits %d and %d, %v", newest.Commit, previous.Commit, err)
	}
	if next, ok := previous.Next(bytes.NewReader(after)); !ok || next != newest {
		t.Errorf("Next: got %v, %v, want %v", next, ok, newest)
	}
	if _, ok := newest.Next(bytes.NewReader(after)); ok {
		t.Error("Next: there is one behind the newest commit")
	}
	size := int(newest.PageSize)
	visited := map[int]bool{}
	visit := func(page uint64, b []byte) {
		for p := range len(b) / size {
			visited[int(page)+p] = true
		}
	}
	if err := Changed(bytes.NewReader(after), newest, previous, 10, visit); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for page := 2; page < int(newest.High); page++ {
		if end := (page + 1) * size; end <= len(before) && bytes.Equal(before[page*size:end], after[page*size:end]) {
			continue
		}
		if changed++; !visited[page] {
			t.Errorf("page %d was changed and not visited", page)
		}
	}
	if len(visited) != changed {
		t.Errorf("visited %d pages, want the %d that were changed", len(visited), changed)
	}
	none := func(uint64, []byte) {}
	if err := Changed(bytes.NewReader(after), newest, previous, changed-1, none); !errors.Is(err, ErrTooMany) {
		t.Errorf("a lower limit: got %v, want ErrTooMany", err)
	}
	for name, damage := range map[string]func(page []byte){
		"id":       func(page []byte) { page[0] ^= 1 },
		"flags":    func(page []byte) { page[8] = 0x40 },
		"overflow": func(page []byte) { page[15] = 1 },
		"entries":  func(page []byte) { page[10], page[11] = 0xff, 0xff },
	} {
		for _, root := range []uint64{newest.Root, previous.Root} {
			damaged := bytes.Clone(after)
			damage(damaged[root*uint64(size):])
			if err := Changed(bytes.NewReader(damaged), newest, previous, 10, none); err == nil || errors.Is(err, ErrTooMany) {
				t.Errorf("%s of page %d: got %v, want why it cannot be read", name, root, err)
			}
		}
	}
}
