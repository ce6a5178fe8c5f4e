//go:build linux || darwin

package processes

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A folder that is deleted ends nothing: what runs is supervised still and can be ended, new ones cannot be started, and errors say so.
func TestAFolderThatIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	w.scale(p, 2)
	kids := w.next(2)
	if err := os.RemoveAll(w.folder); err != nil {
		t.Fatal(err)
	}
	err := p.Scale(t.Context(), 3)
	if err == nil || !strings.Contains(err.Error(), "3 instances are wanted") || !strings.Contains(err.Error(), "start instance 3") || !strings.Contains(err.Error(), w.folder) {
		t.Errorf("Scale: got %v, want what was attempted", err)
	}
	if n, err := p.Instances(t.Context()); n != 3 || err != nil {
		t.Errorf("Instances: got %d, %v; want 3", n, err)
	}
	kids[2].end(0)
	w.until(p, "two wait", func(s State) bool { return s.Running == 1 && s.Waiting == 2 && s.Restarts == 1 })
	if err := p.Scale(t.Context(), 0); err == nil {
		t.Error("Scale: got no error, want one that says that it is not kept")
	}
	if got := kids[1].hears(); got != "told" {
		t.Errorf("got %q, want told", got)
	}
	kids[1].end(0)
	w.until(p, "none is left", func(s State) bool { return s.Draining == 0 })
}

// Folders that become writable again are written: the next agent has what was wanted meanwhile.
func TestAFolderThatRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.open()
	obstacle := filepath.Join(w.folder, keptFresh)
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := p.Scale(t.Context(), 2); err == nil || !strings.Contains(err.Error(), "keep in "+w.folder) {
		t.Errorf("Scale: got %v, want that it is not kept", err)
	}
	w.next(2) // nevertheless
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	w.until(p, "it is kept", func(State) bool {
		text, _ := os.ReadFile(filepath.Join(w.folder, keptName))
		return strings.Contains(string(text), `"wanted":2`)
	})
}

func init() { tasks["read-only"] = playReadOnly }

// playReadOnly opens a folder as a user other than root, who could write anywhere.
func playReadOnly() {
	if os.Geteuid() == 0 {
		must(syscall.Setuid(65534))
	}
	_, err := New(Options{Command: []string{"true"}, Folder: os.Getenv(folderVariable)})
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
