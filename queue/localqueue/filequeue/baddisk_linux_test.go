package filequeue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
)

// redirect sends later writes of a file to another file, to simulate a disk that fails or loses
// writes. Mapped memory is not affected.
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

// TestCloseOnADiskThatLosesWrites: the disk confirms writes to the tree and loses them,
// from the final checkpoint on. Close reports it, and the logs have everything.
func TestCloseOnADiskThatLosesWrites(t *testing.T) {
	dir := memoryDirectory(t)
	s, texts := begun(t, dir), map[uint64]string{}
	put(t, s, texts, 1, "in the log only")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	tree, err := os.ReadFile(s.path())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(elsewhere, tree, 0o600); err != nil {
		t.Fatal(err)
	}
	redirect(t, s.file, elsewhere, os.O_RDWR)
	if err := s.Close(); !errors.Is(err, errLostWrite) {
		t.Errorf("Close: got %v, want errLostWrite", err)
	}
	reopenedWhole(t, dir, texts)
}

// TestCloseOnADiskThatFails: what could not be written to the tree is still in the logs.
func TestCloseOnADiskThatFails(t *testing.T) {
	dir := memoryDirectory(t)
	s, texts := begun(t, dir), map[uint64]string{}
	put(t, s, texts, 1, "in the log only")
	redirect(t, s.file, s.path(), os.O_RDONLY)
	if err := s.Close(); err != nil {
		t.Logf("Close: %v", err)
	}
	reopenedWhole(t, dir, texts)
}

// TestTheStoreWorksWithoutLogs: if the tree cannot record that there are logs, commits go into the tree.
func TestTheStoreWorksWithoutLogs(t *testing.T) {
	dir := memoryDirectory(t)
	s, texts := begun(t, dir), map[uint64]string{}
	put(t, s, texts, 1, "in the log")
	if err := s.finalCheckpoint(); err != nil {
		t.Fatal(err)
	}
	path := s.path()
	redirect(t, s.file, path, os.O_RDONLY)
	if err := s.startLogs(); err != nil || s.logsReady {
		t.Errorf("startLogs: got %v, logs ready %v; want nil, false", err, s.logsReady)
	}
	redirect(t, s.file, path, os.O_RDWR)
	before := treeCommits(t, s)
	put(t, s, texts, 2, "in the tree")
	put(t, s, texts, 3, "in a log again")
	if got := treeCommits(t, s) - before; got != 2 || !s.logsReady { // the second records that there are logs
		t.Errorf("got %d commits to the tree, logs ready %v; want 2, true", got, s.logsReady)
	}
	s.abandon(t)
	reopenedWhole(t, dir, texts)
}

// TestAPageLostWhileOpenDoesNotEndTheProcess: neither a read nor a checkpoint nor Close
// ends the process, and every acknowledged message is there or reported as lost.
func TestAPageLostWhileOpenDoesNotEndTheProcess(t *testing.T) {
	page := os.Getpagesize()
	kilobyte := strings.Repeat("x", 1000)
	for name, lose := range map[string]func(f *os.File) error{
		"zeroed": func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, 60*page), int64(2*page))
			return err
		},
		"cut off": func(f *os.File) error { return f.Truncate(int64(2 * page)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := memoryDirectory(t)
			s := begun(t, dir)
			for n := range uint64(200) {
				commit(t, s, added(n, kilobyte))
			}
			commit(t, s, localengine.AccountSaved{Name: "check"})
			commit(t, s, added(1000, "in the log"))
			tree, err := os.OpenFile(s.path(), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lose(tree), tree.Close()); err != nil {
				t.Fatal(err)
			}
			view, err := s.View()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := view.Text(key(7)); err == nil || errors.Is(err, localengine.ErrDamaged) {
				t.Errorf("text on a lost page: got %v, want an error other than ErrDamaged", err)
			}
			if text, err := view.Text(key(1000)); err != nil || text != "in the log" {
				t.Errorf("text in the log: got %q, %v", text, err)
			}
			view.Close()
			for range 2 { // the error is permanent
				if _, err := s.Commit([]localengine.Change{localengine.AccountSaved{Name: "check again"}, localengine.MessageRemoved(key(7))}); err == nil || !strings.Contains(err.Error(), "damaged while it was open") {
					t.Errorf("checkpoint: got %v, want damaged while it was open", err)
				}
			}
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "damaged while it was open") {
				t.Errorf("Close: got %v, want damaged while it was open", err)
			}
			found, texts := reopenedTexts(t, dir)
			if found.Damaged == 0 {
				t.Errorf("opened again: got %d messages and no damage, want damage reported", len(texts))
			}
		})
	}
}
