package filequeue

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/localengine"
)

// clearedAndKilled leaves a directory as a kill does right after a clear: the first commit has
// removed two thirds of the messages, and two later ones are in the tree and in the log. The file
// is large enough to be rebuilt, by a hole at its end.
func clearedAndKilled(t *testing.T, dir string) map[uint64]string {
	t.Helper()
	const n = maxTombstoned * 3 / 2
	s, texts := begun(t, dir), map[uint64]string{}
	changes := make([]localengine.Change, n)
	for i := range changes {
		changes[i] = added(uint64(i)+1, largeText[:1000])
	}
	commit(t, s, changes...)
	commit(t, s, localengine.QueueCleared(key(n)), added(n+1, "in the tree"))
	texts[n+1] = "in the tree"
	s.moreWork = false // the kill comes before the rest is removed
	put(t, s, texts, n+2, "in the log")
	s.abandon(t)
	if err := os.Truncate(s.path(), rebuildSize); err != nil {
		t.Fatal(err)
	}
	return texts
}

// TestOpenRemovesClearedMessages: nobody needs to write first.
func TestOpenRemovesClearedMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large file")
	}
	dir := memoryDirectory(t)
	texts := clearedAndKilled(t, dir)
	if err := os.Truncate(filepath.Join(dir, fileName), rebuildSize-4096); err != nil { // it is not rebuilt
		t.Fatal(err)
	}
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if found := s.Found(); found.Messages != 2 || found.Bytes != int64(len("in the tree")+len("in the log")) {
		t.Errorf("found %+v, want 2 messages and their bytes", found)
	}
	e, err := engineOver(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	closed(t, e)
	if s.moreWork || s.digest.bodies.count != 2 {
		t.Errorf("after Close: got %d messages in the tree and more work %v, want 2 and none", s.digest.bodies.count, s.moreWork)
	}
	reopenedWhole(t, dir, texts)
}

// TestOpenGivesTheSpaceOfClearedMessagesBack: even if the process was killed right after the
// clear.
func TestOpenGivesTheSpaceOfClearedMessagesBack(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a large file")
	}
	dir := memoryDirectory(t)
	texts := clearedAndKilled(t, dir)
	size := func() int64 {
		t.Helper()
		info, err := os.Stat(filepath.Join(dir, fileName))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := size(); got > 1<<20 || s.moreWork {
		t.Errorf("size after Open: got %d bytes and more work %v, want less than 1 MiB", got, s.moreWork)
	}
	s.abandon(t)
	found, got := reopenedTexts(t, dir)
	if found.Damaged > 0 || found.Torn || !maps.Equal(got, texts) {
		t.Errorf("opened again: got %+v and %v, want %v", found, got, texts)
	}
}
