package blob

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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

// The age of a blob is counted by the clock of the file system, here a day behind, and each Put reads
// it again. Unknown, it makes no blob older than it is.
func TestTheTimeIsThatOfTheFileSystem(t *testing.T) {
	d, err := openDirectory(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.root.Close()
	ref := Ref{"photos", "a"}
	put := func() {
		t.Helper()
		if err := d.Put(t.Context(), ref, strings.NewReader("x"), nil); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, wanted func(now time.Time) bool) {
		t.Helper()
		stat, err := d.Stat(t.Context(), ref)
		if err != nil || !wanted(stat.Now) {
			t.Errorf("%s, Stat: got the time %v, error %v", what, stat.Now, err)
		}
		for listed, err := range d.List(t.Context(), ref.Container, "") {
			if err != nil || !wanted(listed.Now) {
				t.Errorf("%s, List: got the time %v, error %v", what, listed.Now, err)
			}
		}
	}
	put()
	day := 24 * time.Hour
	d.clock.Store(reading{theirs: time.Now().Add(-day), ours: time.Now()})
	check("a clock a day behind", func(now time.Time) bool { return time.Since(now) > day-time.Hour })
	put()
	check("after a Put", func(now time.Time) bool { return !now.IsZero() && time.Since(now) < time.Hour })
	d.clock = atomic.Value{}
	check("unknown", time.Time.IsZero)
}
