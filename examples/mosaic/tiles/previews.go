package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	// MaxPreview is the longest side of a preview, in pixels.
	MaxPreview = 512

	// generatedPreview is the side of the preview of a generated tile, whose ornament shows no more when larger.
	generatedPreview = 256

	// previewBudget limits the bytes of pictures that previews decode at a time.
	previewBudget = 200_000_000
)

// ErrNoPreview means that there is no tile of that name, or that its picture is gone or cannot be read any more.
var ErrNoPreview = errors.New("there is no preview")

// Previews has a picture of at most [MaxPreview] pixels a side for each tile of a library: the whole photograph, upright,
// as JPEG. Make one with [DirPreviews] or [GeneratedPreviews]. It is safe for concurrent use.
type Previews struct {
	open func(ctx context.Context, name string) ([]byte, error)
}

// Open returns the preview of the tile with a name, as JPEG. The caller may trust neither that the name comes from a
// library nor that it is harmless: names are hashed before they become part of a path, and no picture outside the
// folder is read but through a link in it. The error is [ErrNoPreview], or the cause of ctx.
func (p *Previews) Open(ctx context.Context, name string) ([]byte, error) {
	return p.open(ctx, name)
}

// DirPreviews has the previews of a library that [FromDir] made of a folder. They come from the cache, which is the folder
// that FromDir was given, and which may be "" for none. A preview that is not there is made of its picture, which takes
// as long as decoding it, and kept.
func DirPreviews(dir, cacheDir string) *Previews {
	d := &dirPreviews{dir: dir, memory: newBudget(previewBudget)}
	if cacheDir != "" {
		d.cache, _ = openCache(cacheDir) // without a cache previews are made each time
	}
	return &Previews{d.open}
}

type dirPreviews struct {
	dir    string
	cache  *cache // nil for none
	memory *budget
}

func (d *dirPreviews) open(ctx context.Context, name string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	local := filepath.FromSlash(name)
	if !filepath.IsLocal(local) || filepath.ToSlash(filepath.Clean(local)) != name || !pictureName(name) || hiddenWithin(name) {
		return nil, fmt.Errorf("%w: a tile cannot be called %q", ErrNoPreview, name)
	}
	path := absolute(d.dir, name)
	if d.cache != nil {
		if b := d.cache.get(d.cache.place("preview", path)); b != nil {
			return b, nil
		}
	}
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: the picture %q is gone", ErrNoPreview, name)
	}
	var preview []byte
	err := decoding(ctx, path, d.memory, func(_ picture.Header, img image.Image) (err error) {
		preview, err = newPreview(img)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w of %q: %w", ErrNoPreview, name, err)
	}
	if d.cache != nil {
		d.cache.put(d.cache.place("preview", path), preview)
	}
	return preview, nil
}

// hiddenWithin reports whether FromDir would not have read a file because of a part of its name.
func hiddenWithin(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if ignored(part) {
			return true
		}
	}
	return false
}

// newPreview makes the preview of a picture.
func newPreview(img image.Image) ([]byte, error) {
	b := img.Bounds()
	cols, rows := b.Dx(), b.Dy()
	if longest := max(cols, rows); longest > MaxPreview {
		cols, rows = max(1, cols*MaxPreview/longest), max(1, rows*MaxPreview/longest)
	}
	small := image.NewRGBA(image.Rect(0, 0, cols, rows))
	err := picture.EachCell(img, b, cols, rows, func(x, y int, c picture.Linear) {
		copy(small.Pix[small.PixOffset(x, y):], []byte{picture.Encode8(c.R), picture.Encode8(c.G), picture.Encode8(c.B), 0xff})
	})
	if err != nil {
		return nil, fmt.Errorf("making a preview: %w", err)
	}
	return asJPEG(small)
}

func asJPEG(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 85}); err != nil {
		return nil, fmt.Errorf("making a preview: %w", err)
	}
	return b.Bytes(), nil
}

// GeneratedPreviews has the previews of the library that [Generate] makes, of any size. They are painted when they are
// asked for.
func GeneratedPreviews() *Previews {
	colours := sync.OnceValue(palette)
	masks := sync.OnceValue(func() []ornament { return ornaments(generatedPreview) })
	return &Previews{func(ctx context.Context, name string) ([]byte, error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		at := strings.LastIndexByte(name, '-')
		i, err := strconv.Atoi(name[at+1:])
		if err != nil || i < 0 || i >= len(colours()) || generatedName(masks(), i) != name {
			return nil, fmt.Errorf("%w: no generated tile is called %q", ErrNoPreview, name)
		}
		o := ornamentOf(masks(), i)
		return asJPEG(paint(colours()[i], o.mask, generatedPreview))
	}}
}

// absolute is the path of a tile in a folder, by which the cache knows it.
func absolute(dir, name string) string {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
