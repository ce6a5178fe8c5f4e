package blob

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNamesAreMadeDurable: each write syncs the name of the blob. The first write to a container,
// and each one that makes its folder again, also syncs the name of the container.
func TestNamesAreMadeDurable(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	var synced []string
	var failure error
	d.sync = func(folder string) error {
		synced = append(synced, folder)
		return failure
	}
	ref := Ref{Container: "pictures", Name: "a"}
	write := func(want ...string) {
		t.Helper()
		synced = nil
		if err := d.Put(t.Context(), ref, strings.NewReader("text"), nil); !errors.Is(err, failure) || failure != nil && err == nil {
			t.Errorf("Put: got %v, want %v", err, failure)
		}
		if !slices.Equal(synced, want) {
			t.Errorf("got %q synced, want %q", synced, want)
		}
	}
	if err := os.Mkdir(filepath.Join(d.path, ref.Container), 0o700); err != nil { // by another process, just now
		t.Fatal(err)
	}
	write(".", "pictures")
	write("pictures")
	if err := os.RemoveAll(filepath.Join(d.path, ref.Container)); err != nil {
		t.Fatal(err)
	}
	write(".", "pictures")
	failure = errors.New("input/output error")
	write("pictures")
	ref.Container = "others"
	write(".")
	write(".")
	failure = nil
	write(".", "others")
}
