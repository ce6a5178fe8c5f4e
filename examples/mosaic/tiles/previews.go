package tiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// MaxPreview is the longest side of a preview, in pixels.
const MaxPreview = 512

// ErrNoPreview means that there is no tile of that name, or that its picture is gone or cannot be read any more.
var ErrNoPreview = errors.New("there is no preview")

// Previews has a picture of at most [MaxPreview] pixels a side for each tile of a library: the whole photograph, upright,
// as JPEG.
type Previews struct{ dir string }

// DirPreviews has the previews of a library that [FromDir] made of a folder.
func DirPreviews(dir string) *Previews { return &Previews{dir} }

// Open returns the preview of the tile with a name, as JPEG. The name is not trusted: no picture outside the
// folder is read but through a link in it.
func (p *Previews) Open(ctx context.Context, name string) ([]byte, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return nil, fmt.Errorf("%w: a tile cannot be called %q", ErrNoPreview, name)
	}
	f, err := os.Open(filepath.Join(p.dir, filepath.FromSlash(name)))
	if err != nil {
		return nil, fmt.Errorf("%w: the picture %q is gone", ErrNoPreview, name)
	}
	defer func() { _ = f.Close() }() // nothing was written
	img, err := picture.Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%w of %q: %w", ErrNoPreview, name, err)
	}
	var b bytes.Buffer
	small := picture.Fit(img, MaxPreview)
	err = picture.Encode(&b, small, small.Rect, picture.JPEG)
	return b.Bytes(), err
}
