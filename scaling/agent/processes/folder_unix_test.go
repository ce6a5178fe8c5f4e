//go:build linux || darwin

package processes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/azuritetest"
)

// A folder that is deleted is made again, and the next agent finds in it what runs: the processes of before, where they are known by
// their start, and new ones. That holds also if only what is in it was deleted.
func TestAFolderThatIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	remade := func(times int) {
		t.Helper()
		azuritetest.Until(t, "it is made again", func() bool {
			return len(w.log.all("the folder of instances, or a file in it, was deleted and is made again", "folder")) == times
		})
	}
	away := w.folder + "-away" // in one step: otherwise it might be made again while it is being deleted
	if err := errors.Join(os.Rename(w.folder, away), os.RemoveAll(away)); err != nil {
		t.Fatal(err)
	}
	remade(1)
	paths, err := filepath.Glob(w.folder + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range paths {
		if err := os.Remove(one); err != nil {
			t.Fatal(err)
		}
	}
	remade(2)
	w.scale(p, 3)
	kids[3] = w.one()
	kids[2].end(0)
	kids[2] = w.one()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	found := 3
	if runtime.GOOS != "linux" {
		found = 2
	}
	if n, err := Left(w.folder); n != found || err != nil {
		t.Errorf("found: got %d instances, %v; want %d", n, err, found)
	}
}

// While a folder cannot be made, that is said once, and so is that nothing can be started; what runs can be ended.
func TestAFolderThatCannotBeMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 1)
	one := w.one()
	away := w.folder + "-away"
	if err := errors.Join(os.Rename(w.folder, away), os.WriteFile(w.folder, nil, 0o600), os.RemoveAll(away)); err != nil {
		t.Fatal(err)
	}
	w.scale(p, 4)
	w.until(p, "three wait", func(s State) bool { return s.Running == 1 && s.Waiting == 3 })
	one.end(0)
	w.until(p, "four wait", func(s State) bool { return s.Waiting == 4 && s.Restarts == 1 })
	if err := os.Remove(w.folder); err != nil {
		t.Fatal(err)
	}
	w.next(4)
	w.until(p, "all run", func(s State) bool { return s.Running == 4 })
	if homeless, failed := len(w.log.all("the folder of instances, or a file in it, was deleted and cannot be made again; the next agent would not find them", "error")),
		len(w.log.all("instance cannot be started; it is tried again", "error")); homeless != 1 || failed != 1 {
		t.Errorf("got %d lines about the folder and %d about starts, want one of each; the log: %s", homeless, failed, w.log)
	}
}

func init() { tasks["read-only"] = playReadOnly }

// playReadOnly opens a folder as a user other than root, who could write anywhere.
func playReadOnly() {
	if os.Geteuid() == 0 {
		must(syscall.Setuid(65534))
	}
	_, err := New(&Options{Command: []string{"true"}, Folder: os.Getenv(folderVariable)})
	fmt.Println(err)
}

func TestAReadOnlyFolderIsRefused(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "processes-") //nolint:usetesting // that of the test is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for path, mode := range map[string]fs.FileMode{dir: 0o755, filepath.Join(dir, "pool"): 0o555} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(dir, "pool")
	for _, folder := range []string{folder, filepath.Join(folder, "new")} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), taskVariable+"=read-only", folderVariable+"="+folder, "GORACE=atexit_sleep_ms=0")
		said, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(said), "permission denied") || !strings.Contains(string(said), folder) {
			t.Errorf("got %q, %v; want permission denied and the folder", said, err)
		}
	}
}
