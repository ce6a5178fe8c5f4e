package filequeue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/queue/localqueue/storage"
)

// redirect sends later writes to a file to another one, as a disk that fails or loses
// writes would. Mapped memory stays as it was.
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
		t.Errorf("the stop: %v", err)
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
		t.Logf("the stop: %v", err)
	}
	reopenedWhole(t, dir, texts)
}

// TestTheStoreWorksWithoutLogs when the tree cannot record them.
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
		t.Errorf("%v, ready: %v", err, s.logsReady)
	}
	redirect(t, s.file, path, os.O_RDWR)
	before := treeCommits(t, s)
	put(t, s, texts, 2, "in the tree")
	put(t, s, texts, 3, "in a log again")
	if got := treeCommits(t, s) - before; got != 2 || !s.logsReady { // and one that says that there are logs
		t.Errorf("it took %d commits of the tree, logs are ready: %v", got, s.logsReady)
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
			commit(t, s, storage.AccountSaved{Name: "check"})
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
			if _, err := view.Text(key(7)); err == nil || errors.Is(err, storage.ErrDamaged) {
				t.Errorf("a text on a page that is lost: %v", err)
			}
			if text, err := view.Text(key(1000)); err != nil || text != "in the log" {
				t.Errorf("a text in the log: %q, %v", text, err)
			}
			view.Close()
			for range 2 { // it stays so
				if _, err := s.Commit([]storage.Change{storage.AccountSaved{Name: "check again"}, storage.MessageRemoved(key(7))}); err == nil || !strings.Contains(err.Error(), "damaged while it was open") {
					t.Errorf("a checkpoint: %v", err)
				}
			}
			if err := s.Close(); err == nil || !strings.Contains(err.Error(), "damaged while it was open") {
				t.Errorf("the stop: %v", err)
			}
			found, texts := reopenedTexts(t, dir)
			if found.Damaged == 0 {
				t.Errorf("opened again, %d messages, and no damage is reported", len(texts))
			}
		})
	}
}
