package filequeue

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestADirectoryHasOneUser(t *testing.T) {
	dir := t.TempDir()
	e := opened(t, dir)
	if _, err := Open(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the second of this process: %v", err)
	}
	if said := whetherItOpens(t, dir); said != "locked" {
		t.Errorf("another process: %s", said)
	}
	closed(t, e)
	if said := whetherItOpens(t, dir); said != "opened" {
		t.Errorf("another process, afterwards: %s", said)
	}
	opened(t, dir)
}

func whetherItOpens(t *testing.T, dir string) string {
	t.Helper()
	return runTask(t, "open", dir)
}

func TestAPathThatIsNotAStoreIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(strings.Repeat("not ours", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file of another program: %v", err)
	}
}
