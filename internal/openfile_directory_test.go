package internal_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/openfile"
)

// TestTheNamesOfNewDirectoriesAreMadeDurable: each in its parent, after it exists. Directories that
// exist already cost nothing.
func TestTheNamesOfNewDirectoriesAreMadeDurable(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("names need no sync")
	}
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(root, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, one := range []struct {
		path string
		want []string // the synced directories below root
	}{
		{"a", []string{"."}},
		{"a", nil},
		{"a/b/c", []string{"a/b", "a"}},
		{"a/d//", []string{"a"}},
		{"link/a/../e", []string{"."}},
	} {
		var synced []string
		err := openfile.MakeDirectory(func(dir string) (*os.File, error) {
			resolved, err := filepath.EvalSymlinks(dir)
			if err != nil {
				return nil, err
			}
			below, err := filepath.Rel(root, resolved)
			if err != nil {
				return nil, err
			}
			if !slices.Contains(synced, below) {
				synced = append(synced, below)
			}
			return os.Open(dir)
		}, root+"/"+one.path, 0o700)
		if err != nil || !slices.Equal(synced, one.want) {
			t.Errorf("%s: got %q synced, %v; want %q", one.path, synced, err, one.want)
		}
		if info, err := os.Stat(filepath.Join(root, one.path)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: got %v, %v; want a directory with mode 0700", one.path, info, err)
		}
	}
	failed := errors.New("input/output error")
	if err := openfile.MakeDirectory(func(string) (*os.File, error) { return nil, failed }, filepath.Join(root, "h"), 0o700); !errors.Is(err, failed) {
		t.Errorf("a sync that fails: got %v, want %v", err, failed)
	}
}

// TestADirectoryBehindALinkToNowhere: the error says so, instead of that the file exists.
func TestADirectoryBehindALinkToNowhere(t *testing.T) {
	link := filepath.Join(t.TempDir(), "data")
	if err := os.Symlink("/nowhere/data", link); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{link, link + "/", filepath.Join(link, "a", "b")} {
		err := openfile.MakeDirectory(os.Open, path, 0o700)
		if err == nil || !strings.HasPrefix(err.Error(), link+" is a symbolic link to /nowhere/data, which does not exist") {
			t.Errorf("%s: got %v, want where the link leads", path, err)
		}
	}
	circle := filepath.Join(t.TempDir(), "circle")
	if err := os.Symlink("circle", circle); err != nil {
		t.Fatal(err)
	}
	if err := openfile.MakeDirectory(os.Open, circle, 0o700); err == nil || !strings.HasPrefix(err.Error(), circle+" is a symbolic link to circle") {
		t.Errorf("a link to itself: got %v, want where it leads", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openfile.MakeDirectory(os.Open, filepath.Join(file, "a"), 0o700); err == nil || strings.Contains(err.Error(), "symbolic") {
		t.Errorf("below a file: got %v, want another error", err)
	}
}

func TestAMissingDirectoryCannotBeSynced(t *testing.T) {
	if err := openfile.SyncDirectory(os.Open, filepath.Join(t.TempDir(), "missing")); runtime.GOOS != "windows" && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want fs.ErrNotExist", err)
	}
}

// TestOnlyAFailingDiskFailsASync: a directory that may not be read, and a file system without such a
// call, do not.
func TestOnlyAFailingDiskFailsASync(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("names need no sync")
	}
	for what, c := range map[string]struct {
		open func(string) (*os.File, error)
		want error
	}{
		"not readable":        {func(string) (*os.File, error) { return nil, fs.ErrPermission }, nil},
		"without such a call": {func(string) (*os.File, error) { r, w, err := os.Pipe(); return r, errors.Join(err, w.Close()) }, nil},
		"a sync that fails":   {func(string) (*os.File, error) { f, err := os.Open(t.TempDir()); return f, errors.Join(err, f.Close()) }, fs.ErrClosed},
		"it cannot be opened": {func(string) (*os.File, error) { return nil, syscall.EIO }, syscall.EIO},
	} {
		if err := openfile.SyncDirectory(c.open, "dir"); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", what, err, c.want)
		}
	}
}

func TestAFailingDiskIsNotFull(t *testing.T) {
	for cause, want := range map[error]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EFBIG: true, syscall.EIO: false, syscall.EROFS: false} {
		if got := openfile.OutOfSpace(&fs.PathError{Op: "write", Path: "file", Err: cause}); got != want {
			t.Errorf("%v: got %v, want %v", cause, got, want)
		}
	}
}
