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
	if _, err := openStore(dir); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second Open of this process: got %v, want ErrLocked and the directory", err)
	}
	if said := openInChild(t, dir); said != "locked" {
		t.Errorf("Open in another process: got %s, want locked", said)
	}
	closed(t, e)
	if said := openInChild(t, dir); said != "opened" {
		t.Errorf("Open in another process after Close: got %s, want opened", said)
	}
	opened(t, dir)
}

func openInChild(t *testing.T, dir string) string {
	t.Helper()
	return runTask(t, "open", dir)
}

func TestAPathThatIsNotAStoreIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("not ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("Open of a file: got %v, want an error with its path", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, fileName), []byte(strings.Repeat("not ours", 4096)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openStore(dir); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Open of another program's file: got %v, want ErrCorrupt", err)
	}
}
