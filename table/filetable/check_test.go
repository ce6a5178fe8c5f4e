package filetable

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/table"
)

// FuzzPages: whatever a file has, opening it is an error or finds a sound tree.
func FuzzPages(f *testing.F) {
	path := scratch(f)
	db := opened(f, path)
	s := tableOf(f, db, "Channels")
	for i := range 40 {
		inserted(f, s, entity("p", strings.Repeat("r", i), strings.Repeat("x", 100)))
	}
	closed(f, db)
	content := withoutReserve(f, readFile(f, path))
	f.Add(3*newestMeta(f, content).PageSize, []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, at uint32, damage []byte) {
		damaged := slices.Clone(content)
		copy(damaged[int(at)%len(damaged):], damage)
		_, _, err := checkPages(bytes.NewReader(damaged), int64(len(damaged)))
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Fatalf("got %v, want ErrCorrupt", err)
		}
		if err == nil {
			path := scratch(t)
			writeFile(t, path, damaged)
			db := opened(t, path)
			for _, err := range table.All(t.Context(), tableOf(t, db, "Channels"), table.Query{}) {
				if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
					t.Fatalf("got %v, want ErrCorrupt", err)
				}
			}
		}
	})
}

// failing is a file on a disk that cannot read some of its pages.
type failing struct {
	io.ReaderAt
	from, to int64
}

func (f failing) ReadAt(b []byte, at int64) (int, error) {
	if at < f.to && at+int64(len(b)) > f.from {
		return 0, &fs.PathError{Op: "read", Path: "tables.db", Err: syscall.EIO}
	}
	return f.ReaderAt.ReadAt(b, at)
}

// TestADiskThatCannotBeReadIsNotDamage: whichever pages it cannot read, the file is not opened as of
// the commit before, nor called damaged or foreign.
func TestADiskThatCannotBeReadIsNotDamage(t *testing.T) {
	path, _ := filled(t)
	content := withoutReserve(t, readFile(t, path))
	page := int64(newestMeta(t, content).PageSize)
	check := func(from, to int64) error {
		_, _, err := checkPages(failing{bytes.NewReader(content), from, to}, int64(len(content)))
		return err
	}
	failed := 0
	for from := int64(0); from < int64(len(content)); from += page {
		err := check(from, from+page)
		if errors.Is(err, ErrCorrupt) || err != nil && !errors.Is(err, syscall.EIO) || from < 2*page && err == nil {
			t.Errorf("page %d: got %v, want EIO", from/page, err)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 4 {
		t.Errorf("got %d pages that are read, want at least 4", failed)
	}
	if err := check(0, int64(len(content))); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "check the disk") {
		t.Errorf("all pages: got %v, want EIO", err)
	}
	if err := check(0, 0); err != nil {
		t.Errorf("a sound disk: got %v", err)
	}
}
