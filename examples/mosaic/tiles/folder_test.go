package tiles

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// drawn is a w×h picture, red in its middle square and blue beside it.
func drawn(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	side := min(w, h)
	crop := image.Rect((w-side)/2, (h-side)/2, (w-side)/2+side, (h-side)/2+side)
	for y := range h {
		for x := range w {
			c := color.RGBA{0, 0, 255, 255}
			if image.Pt(x, y).In(crop) {
				c = color.RGBA{255, 0, uint8(y & 1), 255}
			}
			img.SetRGBA(x, y, c)
		}
	}
	return img
}

func put(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func encoded(t testing.TB, format string, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	var err error
	switch format {
	case "png":
		err = png.Encode(&b, img)
	case "jpg":
		err = jpeg.Encode(&b, img, &jpeg.Options{Quality: 100})
	case "gif":
		err = gif.Encode(&b, img, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFromDir(t *testing.T) {
	dir := t.TempDir()
	put(t, dir, "b.PNG", encoded(t, "png", drawn(90, 50)))
	put(t, dir, "a.jpg", encoded(t, "jpg", drawn(64, 128)))
	put(t, dir, "c.Jpeg", encoded(t, "jpg", drawn(33, 33)))
	put(t, dir, "d.gif", encoded(t, "gif", drawn(5, 4)))
	put(t, dir, "one.png", encoded(t, "png", drawn(1, 1)))
	put(t, dir, "broken.jpg", []byte("\xff\xd8\xff\xe0 oh dear"))
	put(t, dir, "text.png", []byte("not a picture"))
	put(t, dir, "huge.png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x10\x00\x00\x00\x10\x00\x00\x08\x02\x00\x00\x00\xc4\x4a\x37\x92\x00\x00\x00\x00IEND"))
	put(t, dir, "notes.txt", []byte("ignored"))
	if err := os.Mkdir(filepath.Join(dir, "folder.png"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"link.png": "b.PNG", "lost.png": "nowhere.png", "dir.jpg": "folder.png"} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}

	reported := map[string]error{}
	var order []string
	l, skipped, err := FromDir(t.Context(), dir, 16, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range skipped {
		reported[s.Name] = s.Err
		order = append(order, s.Name)
	}
	var names []string
	for i := range l.Len() {
		names = append(names, l.Tile(i).Name)
	}
	if want := []string{"a.jpg", "b.PNG", "c.Jpeg", "d.gif", "link.png", "one.png"}; !slices.Equal(names, want) {
		t.Errorf("tiles: got %q, want %q", names, want)
	}
	if want := []string{"broken.jpg", "huge.png", "lost.png", "text.png"}; !slices.Equal(order, want) {
		t.Errorf("reported: got %q, want %q", order, want)
	}
	for file, want := range map[string]error{
		"broken.jpg": picture.ErrDamaged, "huge.png": picture.ErrTooLarge, "text.png": picture.ErrNotPicture, "lost.png": fs.ErrNotExist,
	} {
		if err := reported[file]; !errors.Is(err, want) || strings.Contains(err.Error(), dir) {
			t.Errorf("%s: got error %v, want %v", file, err, want)
		}
	}
	for i := range l.Len() {
		if tile := l.Tile(i); !near(meanOf(tile.Pix), picture.Linear{R: 1}, 0.02) {
			t.Errorf("%s: got a mean of %v, want red", tile.Name, meanOf(tile.Pix))
		}
	}
	again, _, err := FromDir(t.Context(), dir, 16, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if again.ID() != l.ID() {
		t.Error("library of a second reading: got another, want the same")
	}
}

func TestFromDirErrors(t *testing.T) {
	empty, broken := t.TempDir(), t.TempDir()
	put(t, empty, "notes.txt", nil)
	put(t, broken, "a.png", []byte("no"))
	for name, c := range map[string]struct {
		dir  string
		size int
		want string
	}{
		"missing":   {filepath.Join(empty, "nothing"), 16, "there is no folder"},
		"a file":    {filepath.Join(empty, "notes.txt"), 16, "notes.txt"},
		"empty":     {empty, 16, "has no pictures"},
		"no usable": {broken, 16, "none of its 1 pictures"},
		"size 0":    {broken, 0, "choose 1 to 64"},
		"size 65":   {broken, 65, "choose 1 to 64"},
	} {
		_, _, err := FromDir(t.Context(), c.dir, c.size, func(int, int) {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	if _, _, err := FromDir(t.Context(), filepath.Join(empty, "nothing"), 16, func(int, int) {}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: got %v, want fs.ErrNotExist", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the user pressed Ctrl-C")
	cancel(stop)
	if _, _, err := FromDir(ctx, broken, 16, func(int, int) {}); !errors.Is(err, stop) {
		t.Errorf("cancelled: got %v, want the cause", err)
	}
}

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
	link(t, elsewhere, dir, "linked") // links to folders are not followed
	link(t, filepath.Join(elsewhere, "deep/far.png"), dir, "linked.png")
	link(t, "..", dir, "summer/loop")        // back to where the reading began
	link(t, "self", dir, "self")             // to itself
	link(t, "summer/beach", dir, "a-second") // to a folder that has its own name
	link(t, dir, elsewhere, "back")
	l, skipped, err := FromDir(t.Context(), dir, 4, func(int, int) {})
	if err != nil || len(skipped) > 0 {
		t.Fatalf("got error %v and skipped %v, want all used", err, skipped)
	}
	want := []string{"b.png", "linked.png", "summer.png", "summer/a.png", "summer/beach/b.png"}
	if got := tileNames(l); !slices.Equal(got, want) {
		t.Errorf("tiles: got %q, want %q", got, want)
	}
}

func TestFromDirReadsAHiddenFolderThatWasNamed(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, ".mine/a.png", encoded(t, "png", drawn(3, 3)))
	l, _, err := FromDir(t.Context(), filepath.Join(dir, ".mine"), 4, func(int, int) {})
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
	l, skipped, err := FromDir(t.Context(), dir, 4, func(int, int) {})
	if err != nil || l.Len() != 1 || len(skipped) != 1 || skipped[0].Name != "closed" || !errors.Is(skipped[0].Err, fs.ErrPermission) {
		t.Errorf("got %v, skipped %v and error %v, want one tile and the folder skipped", l, skipped, err)
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
	l, skipped, err := FromDir(t.Context(), dir, 4, func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if l.Len() != 9 || len(skipped) != 1 || skipped[0].Name != names[11] {
		t.Errorf("got tiles %q, skipped %v; want 9 tiles, the hidden names not found and the longest skipped", tileNames(l), skipped)
	}
}

func TestFromDirReportsProgress(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "b/c.png", "d.jpg"} {
		putAt(t, dir, name, encoded(t, "png", drawn(3, 3)))
	}
	var got [][2]int
	if _, _, err := FromDir(t.Context(), dir, 4, func(done, all int) { got = append(got, [2]int{done, all}) }); err != nil {
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
