//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package internal_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/internal/openfile"
)

// openedFile opens a file, which the test's end closes.
func openedFile(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// TestALockKeepsOthersOut: until it is released, or the file is closed.
func TestALockKeepsOthersOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	first, second := openedFile(t, path), openedFile(t, path)
	try := func(f *os.File, want bool) {
		t.Helper()
		if locked, err := openfile.TryLock(f); err != nil || locked != want {
			t.Errorf("got %v, %v, want %v", locked, err, want)
		}
	}
	try(first, true)
	try(first, true) // as bbolt does
	try(second, false)
	if err := openfile.Unlock(first); err != nil {
		t.Fatal(err)
	}
	try(second, true)
	try(first, false)
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	try(first, true)
	if locked, err := openfile.TryLock(second); err == nil || locked {
		t.Errorf("a closed file: got %v, %v, want an error", locked, err)
	}
}

func TestADeletedFileIsNotLinked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f := openedFile(t, path)
	for _, want := range []bool{true, false} {
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if got := openfile.Linked(info); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := os.Remove(path); want && err != nil {
			t.Fatal(err)
		}
	}
}
