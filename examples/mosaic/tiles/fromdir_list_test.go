package tiles

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// putAt writes a file and the folders on the way to it.
func putAt(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, dir, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
		t.Skipf("the system has no symbolic links: %v", err)
	}
}

func tileNames(l *Library) []string {
	var names []string
	for i := range l.Len() {
		names = append(names, l.Tile(i).Name)
	}
	return names
}

func TestFromDirReadsFoldersWithin(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	drawing := encoded(t, "png", drawn(9, 9))
	for _, name := range []string{
		"b.png", "summer/a.png", "summer/beach/b.png", "summer.png",
		".hidden.png", "._b.png", ".thumbnails/a.png", "summer/.cache/x.png", "summer/@eaDir/a.png", "__MACOSX/b.png", "$RECYCLE.BIN/c.png",
	} {
		putAt(t, dir, name, drawing)
	}
	putAt(t, elsewhere, "deep/far.png", drawing)
	link(t, elsewhere, dir, "linked")
	link(t, "..", dir, "summer/loop")        // back to where the reading began
	link(t, "self", dir, "self")             // to itself
	link(t, "summer/beach", dir, "a-second") // to a folder that has its own name
	link(t, dir, elsewhere, "back")
	l, summary, err := FromDir(t.Context(), dir, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"b.png", "linked/deep/far.png", "summer.png", "summer/a.png", "summer/beach/b.png"}
	if got := tileNames(l); !slices.Equal(got, want) {
		t.Errorf("tiles: got %q, want %q", got, want)
	}
	if got, want := summary.String(), "5 of 5 used"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
	}
}

// A link to / must not make tiles of all pictures of the machine.
func TestFromDirDoesNotFollowLinksToFoldersAround(t *testing.T) {
	around, elsewhere := t.TempDir(), t.TempDir()
	drawing := encoded(t, "png", drawn(9, 9))
	putAt(t, around, "private.png", drawing)
	putAt(t, around, "photos-old/b.png", drawing) // whose name begins as that of the folder
	putAt(t, around, "photos/a.png", drawing)
	putAt(t, elsewhere, "c.png", drawing)
	dir := filepath.Join(around, "photos")
	link(t, "/", dir, "machine")
	link(t, "..", dir, "up")
	link(t, "../photos-old", dir, "old")
	link(t, elsewhere, dir, "elsewhere")
	link(t, around, elsewhere, "up") // by way of another link
	link(t, dir, dir, "again")
	t.Chdir(around)
	for _, named := range []string{dir, "photos", "../" + filepath.Base(around) + "/photos/."} {
		var skipped []string
		l, summary, err := FromDir(t.Context(), named, 4, &DirOptions{Skipped: func(file string, err error) { skipped = append(skipped, file) }})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := tileNames(l), []string{"a.png", "elsewhere/c.png", "old/b.png"}; !slices.Equal(got, want) {
			t.Errorf("tiles: got %q, want %q", got, want)
		}
		if want := []string{"elsewhere/up", "machine", "up"}; !slices.Equal(skipped, want) {
			t.Errorf("skipped: got %q, want %q", skipped, want)
		}
		if got, want := summary.String(), "3 of 6 used, 3 skipped: 3 link to a folder around it"; got != want {
			t.Errorf("summary: got %q, want %q", got, want)
		}
	}
}

func TestFromDirReadsAHiddenFolderThatWasNamed(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, ".mine/a.png", encoded(t, "png", drawn(3, 3)))
	l, _, err := FromDir(t.Context(), filepath.Join(dir, ".mine"), 4, nil)
	if err != nil || l.Len() != 1 {
		t.Errorf("got %v tiles and error %v, want 1 tile", l, err)
	}
}

func TestFromDirReportsFoldersItCannotRead(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, "a.png", encoded(t, "png", drawn(3, 3)))
	putAt(t, dir, "closed/b.png", encoded(t, "png", drawn(3, 3)))
	closed := filepath.Join(dir, "closed")
	if err := os.Chmod(closed, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(closed, 0o700) })
	if _, err := os.ReadDir(closed); err == nil {
		t.Skip("this user may read everything")
	}
	var skipped []string
	l, summary, err := FromDir(t.Context(), dir, 4, &DirOptions{Skipped: func(file string, err error) { skipped = append(skipped, file) }})
	if err != nil || l.Len() != 1 || !slices.Equal(skipped, []string{"closed"}) {
		t.Errorf("got %v, skipped %q and error %v, want one tile and the folder skipped", l, skipped, err)
	}
	if got, want := summary.String(), "1 of 2 used, 1 skipped: 1 not permitted"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
	}
}

// A folder of uploads has names that were chosen to do harm.
func TestFromDirWithHostileNames(t *testing.T) {
	dir := t.TempDir()
	drawing := encoded(t, "png", drawn(3, 3))
	long := strings.Repeat("x", 200)
	names := []string{
		"..png", "...png", "a\nlevel=error.png", "<script>alert(1)</script>.png", "-rf.png", "%2e%2e%2f.png", "\xff\xfe.png",
		"con.png", "a\\..\\b.png", "\x1b[31mred.png",
		strings.Repeat(long+"/", 4) + long + ".png", // 1,008 bytes
		strings.Repeat(long+"/", 5) + long + ".png", // 1,209 bytes: longer than a name may be
	}
	for _, name := range names {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if os.MkdirAll(filepath.Dir(path), 0o700) != nil || os.WriteFile(path, drawing, 0o600) != nil {
			t.Skip("this file system does not hold such names")
		}
	}
	var skipped []string
	l, summary, err := FromDir(t.Context(), dir, 4, &DirOptions{Skipped: func(file string, err error) { skipped = append(skipped, file) }})
	if err != nil {
		t.Fatal(err)
	}
	if summary.Used != 9 || len(skipped) != 1 || skipped[0] != names[11] {
		t.Errorf("got %v, tiles %q, skipped %q; want 9 tiles, the hidden names not found and the longest skipped", summary, tileNames(l), skipped)
	}
}

func TestFromDirReportsProgress(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "b/c.png", "d.jpg"} {
		putAt(t, dir, name, encoded(t, "png", drawn(3, 3)))
	}
	var got [][2]int
	if _, _, err := FromDir(t.Context(), dir, 4, &DirOptions{Progress: func(done, all int) { got = append(got, [2]int{done, all}) }}); err != nil {
		t.Fatal(err)
	}
	if want := [][2]int{{0, 3}, {1, 3}, {2, 3}, {3, 3}}; !slices.Equal(got, want) {
		t.Errorf("progress: got %v, want %v", got, want)
	}
}

func TestFromDirStopsListing(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, "a/b.png", encoded(t, "png", drawn(3, 3)))
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the user pressed Ctrl-C")
	cancel(stop)
	if _, err := listPictures(ctx, dir); !errors.Is(err, stop) {
		t.Errorf("got error %v, want %v", err, stop)
	}
}
