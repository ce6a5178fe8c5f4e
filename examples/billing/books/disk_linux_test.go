package books

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/smalldisktest"
)

// TestAFullDiskLosesNothing: recording fails with advice, nothing of the batch is there, the books can
// be read and opened, and the batch is recorded when there is room.
func TestAFullDiskLosesNothing(t *testing.T) {
	folder := smalldisktest.Mount(t, 2)
	path, filler := filepath.Join(folder, "books.db"), filepath.Join(folder, "filler")
	b := opened(t, path)
	recorded(t, b, made("batch-0", 1000))
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for piece := make([]byte, 4096); err == nil; {
		_, err = f.Write(piece)
	}
	f.Close()
	d := made("batch-1", 1000)
	for range 2 {
		if _, err := d.record(t.Context(), b); err == nil || !strings.Contains(err.Error(), "disk") || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
		checkWhole(t, b, 1, 1000)
	}
	checkWhole(t, opened(t, path), 1, 1000)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	recorded(t, b, d)
	checkWhole(t, b, 2, 1000)
}

// TestAReadOnlyFolderIsAnErrorThatSaysSo: for a new file, and for one that is there.
func TestAReadOnlyFolderIsAnErrorThatSaysSo(t *testing.T) {
	folder := smalldisktest.Mount(t, 2)
	b, err := Open(t.Context(), filepath.Join(folder, "books.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", folder, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"new.db", "books.db"} {
		b, err := Open(t.Context(), filepath.Join(folder, name))
		if err == nil {
			_, err = made("batch", 1).record(t.Context(), b)
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "must be allowed to write") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
