package filetable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/table"
)

// redirect sends later writes of a file to another one, to simulate a disk that fails. Mapped memory is not affected.
func redirect(t *testing.T, f *os.File, path string, flag int) {
	t.Helper()
	other, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := syscall.Dup3(int(other.Fd()), int(f.Fd()), syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

// TestADiskThatFailsChangesNothing: changes fail with ErrUnavailable while it does, and go on when it does not.
func TestADiskThatFailsChangesNothing(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	s := tableOf(t, db, "Channels")
	etag := inserted(t, s, entity("p", "before", ""))
	redirect(t, db.file, path, os.O_RDONLY)
	for range 2 {
		if _, err := s.Insert(t.Context(), entity("p", "failed", "")); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want ErrUnavailable and the path", err)
		}
		if err := s.Delete(t.Context(), table.Key{Partition: "p", Row: "before"}, etag); !errors.Is(err, table.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	}
	redirect(t, db.file, path, os.O_RDWR)
	if again := inserted(t, s, entity("p", "failed", "")); again == etag {
		t.Errorf("the version %s came twice", etag)
	}
	if p, err := s.Query(t.Context(), table.Query{}); err != nil || len(p.Entities) != 2 {
		t.Errorf("got %v, %v, want two entities", p.Entities, err)
	}
}

// TestAFailingDiskIsNotCalledFull: space cannot be allocated, for another reason than a full disk.
func TestAFailingDiskIsNotCalledFull(t *testing.T) {
	path := scratch(t)
	db := opened(t, path)
	s := tableOf(t, db, "Channels")
	redirect(t, db.file, path, os.O_RDONLY) // before any space is allocated
	_, err := s.Insert(t.Context(), entity("p", "a", ""))
	redirect(t, db.file, path, os.O_RDWR)
	if !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "allocate space for "+path) || strings.Contains(err.Error(), "full") {
		t.Errorf("got %v, want that space cannot be allocated, and no full disk", err)
	}
}

// TestAFileBehindALinkToNowhere: the error says where the link leads, whether it is the file's or its folder's. A file
// that is a link to another folder works.
func TestAFileBehindALinkToNowhere(t *testing.T) {
	path, elsewhere := scratch(t), scratch(t)
	folder := path + ".folder"
	for _, link := range []string{path, folder} {
		if err := os.Symlink("/nowhere/tables", link); err != nil {
			t.Fatal(err)
		}
	}
	for open, link := range map[string]string{path: path, folder + "/tables.db": folder} {
		if _, err := Open(open, nil); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link to /nowhere/tables, which does not exist") {
			t.Errorf("%s: got %v, want where the link leads", open, err)
		}
	}
	closed(t, opened(t, elsewhere))
	if err := errors.Join(os.Remove(path), os.Symlink(elsewhere, path)); err != nil {
		t.Fatal(err)
	}
	inserted(t, tableOf(t, opened(t, path), "Channels"), entity("p", "a", ""))
}

// TestACommitWhoseWaitFailed: it can be read and may not be on disk, whichever of its waits it was. So it fails, no more
// changes are made, and nothing says that it is on disk.
func TestACommitWhoseWaitFailed(t *testing.T) {
	for _, shape := range commitShapes {
		for failing := 1; failing <= shape.waits; failing++ {
			t.Run(fmt.Sprintf("%s, wait %d", shape.name, failing), func(t *testing.T) {
				db, k := shaped(t)
				cause := errors.New("input/output error")
				n, wait := 0, db.sync
				db.sync = func() error {
					if n++; n == failing {
						return cause
					}
					return wait()
				}
				if _, err := db.commit(shape.do(k)); !errors.Is(err, cause) || !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "unknown") {
					t.Errorf("the wait failed: got %v", err)
				}
				for range 2 {
					if _, err := db.commit([]*request{kept{}.put("later", "")}); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "open the file again") {
						t.Errorf("after it: got %v, want ErrUnavailable", err)
					}
				}
				if err := db.Close(); !errors.Is(err, cause) || !strings.Contains(err.Error(), db.path) {
					t.Errorf("Close: got %v, want why", err)
				}
				if n != failing {
					t.Errorf("%d waits after the one that failed", n-failing)
				}
				now := readFile(t, db.path)
				m := newestMeta(t, now)
				if is, _, err := standingOf(bytes.NewReader(now), m); err != nil || is == onDisk {
					t.Errorf("the newest commit has the standing %d, %v", is, err)
				}
			})
		}
	}
}

// TestACommitThatWasNotWrittenIsForgotten: later ones are made.
func TestACommitThatWasNotWrittenIsForgotten(t *testing.T) {
	db, cause := unlooped(t, scratch(t)), errors.New("input/output error")
	defer closed(t, db)
	if err := db.settle(commits(t, db)+1, cause); !errors.Is(err, cause) || db.broken != nil {
		t.Errorf("got %v and then %v", err, db.broken)
	}
	if err := db.settle(commits(t, db), cause); !errors.Is(err, cause) || db.broken == nil {
		t.Errorf("a commit that can be read: got %v and then %v", err, db.broken)
	}
	db.broken = nil
}

// TestOpenAndCloseWhoseWaitFailed: Close fails; what an earlier process left is not taken for durable.
func TestOpenAndCloseWhoseWaitFailed(t *testing.T) {
	db, k := shaped(t)
	committed(t, db, k.putMany(900, 1, 100)...)
	cause := errors.New("input/output error")
	db.sync = func() error { return cause }
	if err := db.Close(); !errors.Is(err, cause) {
		t.Errorf("Close: got %v", err)
	}
	db = unlooped(t, db.path)
	at := db.newest.MetaAt(1-db.newest.Slot) + markAt
	if _, err := db.file.WriteAt(make([]byte, markSize), at); err != nil { // as if it had not reached the disk
		t.Fatal(err)
	}
	db.sync = func() error { return cause }
	if err := db.beginSeals(format); !errors.Is(err, cause) {
		t.Errorf("begin: got %v", err)
	}
	if is, _, err := standingOf(db.file, db.newest); err != nil || is != whole {
		t.Errorf("got the standing %d, %v, want %d", is, err, whole)
	}
	db.sync = db.tree.Sync
	closed(t, db)
}

// TestADeletedFileTakesNoChange: what is written to it would be lost.
func TestADeletedFileTakesNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := scratch(t)
		db, err := Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		s := tableOf(t, db, "Channels")
		inserted(t, s, entity("p", "a", ""))
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(checkDeletedEvery)
		for range 2 {
			if _, err := s.Insert(t.Context(), entity("p", "b", "")); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "deleted while it was in use") {
				t.Errorf("got %v, want that the file was deleted", err)
			}
		}
		if err := db.Close(); err == nil || !strings.Contains(err.Error(), "deleted while it was in use") {
			t.Errorf("Close: got %v, want that the file was deleted", err)
		}
	})
}

// TestAFileDamagedWhileOpenEndsNoProcess: reads and commits fail, Close does not hang, and the file is refused then.
func TestAFileDamagedWhileOpenEndsNoProcess(t *testing.T) {
	for name, lose := range map[string]func(f *os.File) error{
		"zeroed": func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, 1<<20), int64(2*os.Getpagesize()))
			return err
		},
		"cut off": func(f *os.File) error { return f.Truncate(int64(2 * os.Getpagesize())) },
	} {
		t.Run(name, func(t *testing.T) {
			path, _ := filled(t)
			db, err := Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			s := tableOf(t, db, "Channels")
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lose(f), f.Close()); err != nil {
				t.Fatal(err)
			}
			_, get := s.Get(t.Context(), table.Key{Partition: "p", Row: "1-1"})
			_, query := s.Query(t.Context(), table.Query{})
			for op, err := range map[string]error{"get": get, "query": query} {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "damaged while it was open") {
					t.Errorf("%s: got %v, want ErrCorrupt", op, err)
				}
				t.Log(err)
			}
			for i := range 3 {
				if _, err := s.Insert(context.Background(), entity("p", fmt.Sprint(i), "")); err == nil {
					t.Error("a change of a damaged file was confirmed")
				} else {
					t.Log(err)
				}
			}
			if err := db.Close(); err == nil {
				t.Error("Close: got no error, want one")
			}
			if _, err := Open(path, &Options{Wait: -1}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("Open: got %v, want ErrCorrupt", err)
			}
		})
	}
}
