//go:build darwin || linux

package filequeue

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAReadOnlyDirectoryIsRefused: the error names the directory and the reason.
func TestAReadOnlyDirectoryIsRefused(t *testing.T) {
	dir := filepath.Join(memoryDirectory(t), "data")
	s := begun(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]fs.FileMode{dir: 0o555, filepath.Dir(dir): 0o755, filepath.Join(dir, fileName): 0o444, filepath.Join(dir, lockName): 0o444} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	said := runTask(t, "open read-only", dir)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Error(err)
	}
	if !strings.Contains(said, "permission denied") || !strings.Contains(said, dir) {
		t.Errorf("error: got %q, want permission denied and the directory", said)
	}
}

func init() { tasks["open read-only"] = openReadOnly }

// openReadOnly opens a directory as a user other than root, who could write anywhere.
func openReadOnly(dir, _ string) error {
	if os.Geteuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	_, err := openStore(dir)
	fmt.Println(err)
	return nil
}
