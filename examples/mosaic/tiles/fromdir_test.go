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
	crop := middle(img.Rect)
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
	put(t, dir, "huge.png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x10\x00\x00\x00\x10\x00\x00\x08\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00IEND"))
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
	l, summary, err := FromDir(t.Context(), dir, 16, &DirOptions{Skipped: func(file string, err error) {
		reported[file] = err
		order = append(order, file)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := summary.String(), "6 of 10 used, 4 skipped: 1 damaged, 1 not a picture, 1 too large, 1 unreadable"; got != want {
		t.Errorf("summary: got %q, want %q", got, want)
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
	red := labOf8(255, 0, 0)
	for i := range l.Len() {
		tile := l.Tile(i)
		if d := deltaE(labOf(tile.Mean), red); d > 2 {
			t.Errorf("%s: the mean is ΔE %.2f from red; want at most 2", tile.Name, d)
		}
		if d := deltaE(labOf(meanOf(tile.Pix)), labOf(tile.Mean)); d > 1 {
			t.Errorf("%s: the pixels are ΔE %.2f from the mean; want at most 1", tile.Name, d)
		}
	}
	again, _, err := FromDir(t.Context(), dir, 16, nil)
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
		_, _, err := FromDir(t.Context(), c.dir, c.size, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
	if _, _, err := FromDir(t.Context(), filepath.Join(empty, "nothing"), 16, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: got %v, want fs.ErrNotExist", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("the user pressed Ctrl-C")
	cancel(stop)
	if _, _, err := FromDir(ctx, broken, 16, nil); !errors.Is(err, stop) {
		t.Errorf("cancelled: got %v, want the cause", err)
	}
}

func TestTileKeepsTheMean(t *testing.T) {
	img := drawn(301, 203)
	for i := range img.Pix {
		if i&3 != 3 {
			img.Pix[i] = byte(i * 2654435761 >> 7)
		}
	}
	for _, size := range []int{1, 7, 16, 64} {
		tile, err := fromImage("x", img, size)
		if err != nil {
			t.Fatal(err)
		}
		if d := deltaE(labOf(meanOf(tile.Pix)), labOf(tile.Mean)); d > 0.4 {
			t.Errorf("size %d: the pixels are ΔE %.3f from the mean; want at most %v", size, d, 0.4)
		}
		if size == 1 {
			m := tile.Mean
			want := []byte{picture.Encode8(m.R), picture.Encode8(m.G), picture.Encode8(m.B), 255}
			if !bytes.Equal(tile.Pix, want) {
				t.Errorf("size 1: got %v, want %v", tile.Pix, want)
			}
		}
	}
}

func BenchmarkTileOf12Megapixels(b *testing.B) {
	img := image.NewYCbCr(image.Rect(0, 0, 4000, 3000), image.YCbCrSubsampleRatio420)
	for b.Loop() {
		if _, err := fromImage("x", img, 16); err != nil {
			b.Fatal(err)
		}
	}
}
