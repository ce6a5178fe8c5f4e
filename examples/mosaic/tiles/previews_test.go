package tiles

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

func previewSize(t *testing.T, b []byte) image.Point {
	t.Helper()
	img, err := jpeg.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return img.Bounds().Size()
}

func TestPreviewsShowTheWholePhotograph(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, "a/wide.png", encoded(t, "png", drawn(2000, 500)))
	putAt(t, dir, "tall.jpg", encoded(t, "jpg", drawn(300, 1024)))
	putAt(t, dir, "small.gif", encoded(t, "gif", drawn(20, 10)))
	putAt(t, dir, "misnamed.heic", encoded(t, "png", drawn(7, 7)))
	putAt(t, dir, "line.png", encoded(t, "png", drawn(3000, 1)))
	want := map[string]image.Point{"a/wide.png": {X: 512, Y: 128}, "tall.jpg": {X: 150, Y: 512}, "small.gif": {X: 20, Y: 10}, "line.png": {X: 512, Y: 1}, "misnamed.heic": {X: 7, Y: 7}}
	for _, cacheDir := range []string{"", t.TempDir()} {
		l, _, err := FromDir(t.Context(), dir, 8, &DirOptions{Cache: cacheDir})
		if err != nil {
			t.Fatal(err)
		}
		if l.Len() != len(want) {
			t.Errorf("tiles: got %d, want %d", l.Len(), len(want))
		}
		previews := DirPreviews(dir, cacheDir)
		for i := range l.Len() {
			name := l.Tile(i).Name
			b, err := previews.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if got := previewSize(t, b); got != want[name] {
				t.Errorf("%s: got %v, want %v", name, got, want[name])
			}
		}
	}
}

// The previews are written when the tiles are made: they need no picture.
func TestPreviewsComeFromTheCache(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	l, _ := fromDir(t, dir, 8, cacheDir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	previews := DirPreviews(dir, cacheDir)
	for i := range l.Len() {
		if _, err := previews.Open(t.Context(), l.Tile(i).Name); err != nil {
			t.Errorf("%s: got error %v, want a preview", l.Tile(i).Name, err)
		}
	}
	if _, err := DirPreviews(dir, "").Open(t.Context(), "1/1.png"); !errors.Is(err, ErrNoPreview) {
		t.Errorf("without cache and picture: got %v, want ErrNoPreview", err)
	}
}

// A preview that was dropped is made again, and kept.
func TestPreviewsAreMadeAgain(t *testing.T) {
	dir, cacheDir := album(t), t.TempDir()
	fromDir(t, dir, 8, cacheDir)
	for _, path := range entries(t, cacheDir, ".preview") {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := DirPreviews(dir, cacheDir).Open(t.Context(), "0/2.png"); err != nil {
		t.Fatal(err)
	}
	spoil(t, dir)
	if _, err := DirPreviews(dir, cacheDir).Open(t.Context(), "0/2.png"); err != nil {
		t.Errorf("the second time: got error %v, want the preview that was kept", err)
	}
}

func TestPreviewsStayInTheFolder(t *testing.T) {
	parent, cacheDir := t.TempDir(), t.TempDir()
	dir := filepath.Join(parent, "photos")
	drawing := encoded(t, "png", drawn(9, 9))
	for _, name := range []string{"secret.png", "photos/a.png", "photos/.hidden/b.png", "photos/@eaDir/c.png", "photos/.d.png"} {
		putAt(t, parent, name, drawing)
	}
	putAt(t, dir, "notes.txt", drawing)
	if err := os.Mkdir(filepath.Join(dir, "folder.png"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, cacheDir := range []string{"", cacheDir} {
		previews := DirPreviews(dir, cacheDir)
		if _, err := previews.Open(t.Context(), "a.png"); err != nil {
			t.Errorf("a.png: got error %v, want a preview", err)
		}
		for _, name := range []string{
			"", ".", "..", "../secret.png", "a/../../secret.png", filepath.Join(parent, "secret.png"), "/etc/passwd", "./a.png", "a.png/",
			"folder.png/../a.png", ".hidden/b.png", "@eaDir/c.png", ".d.png", "notes.txt", "folder.png", "missing.png", "a.png\x00.png", "..\\secret.png",
		} {
			if _, err := previews.Open(t.Context(), name); !errors.Is(err, ErrNoPreview) {
				t.Errorf("%q: got error %v, want ErrNoPreview", name, err)
			}
		}
	}
	// A picture outside has an entry if another library has it. It is not given away either.
	fromDir(t, parent, 8, cacheDir)
	if _, err := DirPreviews(dir, cacheDir).Open(t.Context(), "../secret.png"); !errors.Is(err, ErrNoPreview) {
		t.Errorf("a picture of another library: got error %v, want ErrNoPreview", err)
	}
}

func TestPreviewsStopWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the visitor left")
	cancel(stop)
	for name, p := range map[string]*Previews{"1/1.png": DirPreviews(album(t), ""), "petals-0000": GeneratedPreviews()} {
		if _, err := p.Open(ctx, name); !errors.Is(err, stop) {
			t.Errorf("got error %v, want %v", err, stop)
		}
	}
}

func TestGeneratedPreviews(t *testing.T) {
	l, err := Generate(4)
	if err != nil {
		t.Fatal(err)
	}
	previews := GeneratedPreviews()
	for i := 0; i < l.Len(); i += 97 {
		tile := l.Tile(i)
		b, err := previews.Open(t.Context(), tile.Name)
		if err != nil {
			t.Fatal(err)
		}
		img, err := jpeg.Decode(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		if got := img.Bounds().Size(); got != image.Pt(generatedPreview, generatedPreview) {
			t.Errorf("%s: got %v, want %d pixels a side", tile.Name, got, generatedPreview)
		}
		again, err := fromImage(tile.Name, img, 4)
		if err != nil {
			t.Fatal(err)
		}
		if d := deltaE(labOf(again.Mean), labOf(tile.Mean)); d > 5 {
			t.Errorf("%s: the preview is ΔE %.1f from its tile, want at most 5", tile.Name, d)
		}
	}
	for _, name := range []string{"", "-", "petals", "petals-", "petals-99999", "petals--1", "petals-1", "nothing-0001", l.Tile(0).Name + "x", "-0000"} {
		if _, err := previews.Open(t.Context(), name); !errors.Is(err, ErrNoPreview) {
			t.Errorf("%q: got error %v, want ErrNoPreview", name, err)
		}
	}
}

// A page that is scrolled asks for many previews and gives most of them up. Those are not decoded one after the other.
func TestPictureThatNobodyWaitsForIsNotDecoded(t *testing.T) {
	dir := t.TempDir()
	putAt(t, dir, "a.png", encoded(t, "png", image.NewGray(image.Rect(0, 0, 40, 40))))
	gone := errors.New("the page was closed")
	ctx, cancel := context.WithCancelCause(t.Context())
	memory, decoded := newBudget(1), 0
	try := func() error {
		return decoding(ctx, filepath.Join(dir, "a.png"), memory, func(picture.Header, image.Image) error {
			decoded++
			cancel(gone)
			return nil
		})
	}
	if err := try(); err != nil {
		t.Fatal(err)
	}
	if err := try(); !errors.Is(err, gone) || decoded != 1 || memory.left != 1 {
		t.Errorf("got error %v, %d pictures decoded and a budget of %d; want the cause, 1 and 1", err, decoded, memory.left)
	}
}
