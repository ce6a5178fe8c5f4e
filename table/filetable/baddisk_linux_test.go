package filetable

import (
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

// TestACommitWhoseLastWaitFailed: it can be read, so another commit must follow it; without one no more changes are made.
func TestACommitWhoseLastWaitFailed(t *testing.T) {
	path, cause := scratch(t), errors.New("input/output error")
	db, err := open(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := func(row string) []*request {
		return []*request{newRequest([]byte("table channels"), []table.Change{table.Inserting(entity("p", row, ""))})}
	}
	if _, err := db.commit(r("a")); err != nil {
		t.Fatal(err)
	}
	id := commits(t, db)
	if err := db.settle(id+1, cause); !errors.Is(err, cause) || commits(t, db) != id || db.broken != nil {
		t.Errorf("a commit that did not take effect: got %v and %d commits more", err, commits(t, db)-id)
	}
	if err := db.settle(id, cause); err != nil || commits(t, db) != id+1 {
		t.Errorf("a commit that took effect: got %v and %d commits more, want one", err, commits(t, db)-id)
	}
	redirect(t, db.file, path, os.O_RDONLY)
	if err := db.settle(id+1, cause); !errors.Is(err, cause) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("no commit can follow: got %v", err)
	}
	redirect(t, db.file, path, os.O_RDWR)
	if _, err := db.commit(r("b")); !errors.Is(err, table.ErrUnavailable) || !strings.Contains(err.Error(), "open the file again") {
		t.Errorf("after it: got %v, want ErrUnavailable", err)
	}
	if err := db.Close(); !errors.Is(err, cause) || !strings.Contains(err.Error(), path) {
		t.Errorf("Close: got %v, want why", err)
	}
	db = opened(t, path)
	if _, err := tableOf(t, db, "channels").Get(t.Context(), table.Key{Partition: "p", Row: "a"}); err != nil {
		t.Error(err)
	}
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
