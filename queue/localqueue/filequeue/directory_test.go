package filequeue

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/localengine"
)

// put commits one message and adds it to texts.
func put(t testing.TB, s *store, texts map[uint64]string, sequence uint64, text string) {
	t.Helper()
	commit(t, s, added(sequence, text))
	texts[sequence] = text
}

func reopenedWhole(t *testing.T, dir string, want map[uint64]string) {
	t.Helper()
	found, texts := reopenedTexts(t, dir)
	if found.Damaged > 0 || found.Torn || len(texts) != len(want) {
		t.Errorf("%s: got %+v and %d messages, want %d without damage", dir, found, len(texts), len(want))
	}
	for n, text := range want {
		if texts[n] != text {
			t.Errorf("%s: message %d: got %q, want %q", dir, n, texts[n], text)
		}
	}
}

// TestARenamedDirectoryIsStillUsed: a store keeps using the directory that it opened, and
// Close removes nothing from the one that now has its name.
func TestARenamedDirectoryIsStillUsed(t *testing.T) {
	parent := memoryDirectory(t)
	name, away := filepath.Join(parent, "data"), filepath.Join(parent, "away")
	first, mine := begun(t, name), map[uint64]string{}
	put(t, first, mine, 1, "before it was renamed")
	if err := os.Rename(name, away); err != nil {
		t.Fatal(err)
	}
	second, theirs := begun(t, name), map[uint64]string{}
	put(t, second, theirs, 1, "of the second")
	put(t, first, mine, 2, "after it was renamed")
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	put(t, second, theirs, 2, "of the second, after the stop of the first")
	second.abandon(t)
	reopenedWhole(t, name, theirs)
	reopenedWhole(t, away, mine)
}

// TestNoCommitIsAcknowledgedAfterTheFilesAreDeleted also checks that Close removes nothing of a
// second store in the same directory.
func TestNoCommitIsAcknowledgedAfterTheFilesAreDeleted(t *testing.T) {
	dir := memoryDirectory(t)
	first := begun(t, dir)
	put(t, first, map[uint64]string{}, 1, "deleted")
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("got files %v, %v; want some", names, err)
	}
	for _, name := range names {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	second, theirs := begun(t, dir), map[uint64]string{}
	put(t, second, theirs, 1, "of the second")
	first.checkedAt = time.Time{} // a second passes
	for range 2 {                 // the error is permanent
		if _, err := first.Commit([]localengine.Change{added(2, "lost")}); err == nil || !strings.Contains(err.Error(), "deleted while it was in use") {
			t.Errorf("commit to a deleted log: got %v, want deleted while it was in use", err)
		}
	}
	first.reserve.release()
	if err := first.Close(); err == nil || !strings.Contains(err.Error(), "deleted while it was in use") {
		t.Errorf("Close: got %v, want deleted while it was in use", err)
	}
	put(t, second, theirs, 2, "of the second, after the stop of the first")
	if _, err := os.Stat(filepath.Join(dir, reserveName)); err != nil {
		t.Errorf("reserve of the second store: got %v, want it to exist", err)
	}
	second.abandon(t)
	reopenedWhole(t, dir, theirs)
}

func TestNoCheckpointIsAcknowledgedAfterTheTreeIsDeleted(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	if err := os.Remove(filepath.Join(dir, fileName)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit([]localengine.Change{localengine.AccountSaved{Name: "check"}}); err == nil || !strings.Contains(err.Error(), "deleted while it was in use") {
		t.Errorf("commit to a deleted tree: got %v, want deleted while it was in use", err)
	}
	s.abandon(t)
	if found, _ := reopenedTexts(t, dir); found.Damaged == 0 {
		t.Error("no damage is reported although the tree is missing and there are logs")
	}
	if kept, err := filepath.Glob(filepath.Join(dir, logName+"-*.damaged-1")); err != nil || len(kept) != 2 {
		t.Errorf("kept logs: got %v, %v; want 2", kept, err)
	}
	if found, _ := reopenedTexts(t, dir); found.Damaged > 0 {
		t.Errorf("opened again: got the damage %v, want none", found.Damage)
	}
}

// TestTheErrorSaysThatTheDirectoryWasDeleted: also when a file must be created in it.
func TestTheErrorSaysThatTheDirectoryWasDeleted(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s.reserve.release()
	if err := s.reserve.allocate(); err == nil || !strings.Contains(err.Error(), dir+" was deleted while it was in use") {
		t.Errorf("allocate: got %v, want was deleted while it was in use", err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "deleted while it was in use") {
		t.Errorf("Close: got %v, want deleted while it was in use", err)
	}
}

// TestADeletedLockStillKeepsOthersOut: Open refuses a file that another store writes before it
// repairs it.
func TestADeletedLockStillKeepsOthersOut(t *testing.T) {
	dir := memoryDirectory(t)
	s, texts := begun(t, dir), map[uint64]string{}
	put(t, s, texts, 1, "kept")
	if err := os.Remove(filepath.Join(dir, lockName)); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open: got %v, want ErrLocked", err)
	}
	put(t, s, texts, 2, "kept too")
	file, err := os.ReadFile(s.path())
	if err != nil {
		t.Fatal(err)
	}
	newest := commitOf(t, file).Meta
	page := make([]byte, s.pageSize) // of the newest commit, twice, so that the file must be rebuilt
	if _, err := s.file.ReadAt(page, int64(newest.Slot)*int64(s.pageSize)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.file.WriteAt(page, int64(1-newest.Slot)*int64(s.pageSize)); err != nil {
		t.Fatal(err)
	}
	before := contentsOf(t, dir)
	if _, err := openStore(dir); !errors.Is(err, ErrLocked) {
		t.Errorf("second Open of a file to rebuild: got %v, want ErrLocked", err)
	}
	if after := contentsOf(t, dir); !reflect.DeepEqual(before, after) {
		t.Error("the second Open changed the files")
	}
	s.abandon(t)
	if _, kept := reopenedTexts(t, dir); !maps.Equal(kept, texts) {
		t.Errorf("messages: got %d, want %d", len(kept), len(texts))
	}
}

// TestOnlyOwnFilesAreRemoved: Close removes nothing of a second store, also on systems where a
// deleted file cannot be detected.
func TestOnlyOwnFilesAreRemoved(t *testing.T) {
	dir := memoryDirectory(t)
	first := begun(t, dir)
	first.linksCounted = false
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range names {
		err = errors.Join(err, os.Remove(name))
	}
	if err != nil {
		t.Fatal(err)
	}
	second, theirs := begun(t, dir), map[uint64]string{}
	put(t, second, theirs, 1, "of the second")
	first.reserve.release()
	if err := first.Close(); err != nil {
		t.Errorf("Close: got %v, want none", err)
	}
	if _, err := os.Stat(filepath.Join(dir, reserveName)); err != nil {
		t.Errorf("reserve of the second store: got %v, want it to exist", err)
	}
	second.abandon(t)
	reopenedWhole(t, dir, theirs)
}

func TestADamagedFileIsCopiedWithoutHardLinks(t *testing.T) {
	s := sampled(t)
	file := slices.Clone(s.file)
	page := os.Getpagesize()
	clear(file[len(file)/2/page*page:][:page])
	dir := memoryDirectory(t)
	if err := os.WriteFile(filepath.Join(dir, fileName), file, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.link = func(string, string) error { return errors.New("operation not permitted") }
	if err := os.WriteFile(filepath.Join(dir, fileName+".damaged-1"), []byte("of another day"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, err := openIn(d, logSize)
	if err != nil {
		t.Fatal(err)
	}
	defer store.abandon(t)
	found := store.Found()
	if want := filepath.Join(dir, fileName+".damaged-2"); found.Damaged == 0 || found.Copy != want {
		t.Errorf("Open: got %+v, want damage and a copy in %s", found, want)
	}
	if kept, err := os.ReadFile(found.Copy); err != nil || !slices.Equal(kept, file) {
		t.Errorf("the copy differs from the original file: %v", err)
	}
}

// TestAFileThatIsALinkElsewhereIsRefused: the error says where it leads and what to do, and a link
// whose volume is missing is not taken for a new store.
func TestAFileThatIsALinkElsewhereIsRefused(t *testing.T) {
	elsewhere := memoryDirectory(t)
	for _, name := range []string{fileName, walName(1), lockName} {
		for what, target := range map[string]string{
			"another directory":            filepath.Join(elsewhere, name),
			"a missing place within":       filepath.Join("missing", name),
			"a missing place, by an upper": filepath.Join("..", "missing", name),
		} {
			if name == lockName && what == "a missing place within" {
				continue // a lock has no content to lose
			}
			dir := memoryDirectory(t)
			s, texts := begun(t, dir), map[uint64]string{}
			put(t, s, texts, 1, "kept")
			s.abandon(t)
			path := filepath.Join(dir, name)
			if err := os.Rename(path, filepath.Join(elsewhere, name)); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, path); err != nil {
				t.Skip(err)
			}
			want := name + " is a symbolic link to " + target
			if _, err := openStore(dir); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "move the whole directory") {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
			if got, err := os.Readlink(path); err != nil || got != target {
				t.Errorf("%s: the link is now %q, %v; want %q", what, got, err, target)
			}
			if err := os.Rename(filepath.Join(elsewhere, name), path); err != nil {
				t.Fatal(err)
			}
			reopenedWhole(t, dir, texts)
		}
	}
}

func TestADirectoryThatIsALinkToNowhere(t *testing.T) {
	link := filepath.Join(memoryDirectory(t), "data")
	if err := os.Symlink("/nowhere/data", link); err != nil {
		t.Skip(err)
	}
	if _, err := openStore(link); err == nil || !strings.Contains(err.Error(), link+" is a symbolic link to /nowhere/data, which does not exist") {
		t.Errorf("got %v, want where the link leads", err)
	}
}

// TestADiskThatCannotBeReadIsNotDamage: to move the file away would be the wrong advice.
func TestADiskThatCannotBeReadIsNotDamage(t *testing.T) {
	dir := memoryDirectory(t)
	s := begun(t, dir)
	s.abandon(t)
	f, err := os.OpenFile(s.path(), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := readSnapshot(f); err == nil || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "check the disk") {
		t.Errorf("got %v, want to check the disk", err)
	}
}
