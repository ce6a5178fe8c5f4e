// Package tiles is the library of small pictures that a photo mosaic is laid from.
//
// A [Library] holds tiles of one size. It comes from a folder of photographs ([FromDir]), is generated ([Generate]), or comes from a
// stream that another process wrote ([Read], [Library.Write]). Which tile is laid where is for package layout.
//
// A Library never changes after it was made and may be used by any number of goroutines.
package tiles

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"io"
	"slices"

	"golang.org/x/image/draw"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	// MaxSize is the largest side of a tile, in pixels.
	MaxSize = 64

	// MaxTiles is the maximum number of tiles of a library.
	MaxTiles = 100_000

	// MaxBytes is the maximum size of the pixels of a library: 256 MiB, or
	// 16,384 tiles of the largest size.
	MaxBytes = 256 << 20

	// maxName is the longest name of a tile, in bytes; file systems have 255.
	maxName = 1024
)

// Tile is one small picture.
type Tile struct {
	Name string // of a tile from a folder: the path of the file within it, with slashes

	// Pix is the pixels, row by row: size×size times red, green, blue (sRGB) and
	// 255, as in an image.RGBA. It must not be changed.
	Pix []byte
}

// Library is a set of tiles of one size, sorted by name. Make one with [New],
// [FromDir], [Generate] or [Read]; the zero value has no tiles.
type Library struct {
	size   int
	tiles  []Tile
	id     string
	origin string // the ID of the library that it was shrunk from; "" if it was not
}

// New makes a library of tiles of size×size pixels, in any order. It keeps the
// slice and the pixels. It fails if a size, name or number is out of
// bounds, or a name occurs twice.
func New(size int, tiles []Tile) (*Library, error) {
	if err := checkBounds(size, len(tiles)); err != nil {
		return nil, err
	}
	slices.SortFunc(tiles, func(a, b Tile) int { return cmp.Compare(a.Name, b.Name) })
	for i, t := range tiles {
		switch {
		case i > 0 && t.Name == tiles[i-1].Name:
			return nil, fmt.Errorf("making the tile library: two tiles are called %q", t.Name)
		case t.Name == "" || len(t.Name) > maxName:
			return nil, fmt.Errorf("making the tile library: the name of a tile has %d bytes: it needs 1 to %d", len(t.Name), maxName)
		case len(t.Pix) != size*size*4:
			return nil, fmt.Errorf("making the tile library: %q has %d bytes of pixels instead of %d", t.Name, len(t.Pix), size*size*4)
		}
		for k := 3; k < len(t.Pix); k += 4 {
			if t.Pix[k] != 0xff {
				return nil, fmt.Errorf("making the tile library: %q has transparent pixels", t.Name)
			}
		}
	}
	l := &Library{size: size, tiles: tiles}
	sum := sha256.New()
	_, _ = fmt.Fprintln(sum, size) // a hash never fails
	for _, t := range tiles {
		_, _ = fmt.Fprintln(sum, len(t.Name), t.Name)
		_, _ = sum.Write(t.Pix)
	}
	l.id = hex.EncodeToString(sum.Sum(nil))
	return l, nil
}

// checkBounds rejects a library that is too large, before memory is spent on it.
func checkBounds(size, n int) error {
	if err := checkSize(size); err != nil {
		return err
	}
	switch {
	case n < 1:
		return errors.New("making the tile library: it has no tiles")
	case n > MaxTiles:
		return fmt.Errorf("making the tile library: %d tiles are more than the limit of %d: use fewer pictures", n, MaxTiles)
	case n*size*size*4 > MaxBytes:
		return fmt.Errorf("making the tile library: %d tiles of %d×%d pixels take %d MiB and the limit is %d MiB: use fewer pictures or smaller tiles",
			n, size, size, n*size*size*4>>20, MaxBytes>>20)
	}
	return nil
}

func checkSize(size int) error {
	if size < 1 || size > MaxSize {
		return fmt.Errorf("making the tile library: a tile of %d pixels is not possible: choose 1 to %d", size, MaxSize)
	}
	return nil
}

// Size is the side of every tile in pixels.
func (l *Library) Size() int { return l.size }

// Len is the number of tiles.
func (l *Library) Len() int { return len(l.tiles) }

// Tile gives tile i, 0 to Len-1 in the order of names (as bytes).
func (l *Library) Tile(i int) Tile { return l.tiles[i] }

// ID identifies the content: a SHA-256, in hexadecimal. Libraries with the same tiles have the
// same ID wherever they were made.
func (l *Library) ID() string { return l.id }

// Origin is the ID of the library that this one was shrunk from, or its own ID.
func (l *Library) Origin() string { return cmp.Or(l.origin, l.id) }

// Shrink makes a library of the same tiles, in the same order, of size×size pixels. It fails if
// size is not between 1 and the size of this library. The new library has an ID of its own, and the
// Origin of this one.
func (l *Library) Shrink(size int) (*Library, error) {
	if size == l.size {
		return l, nil
	}
	if size < 1 || size > l.size {
		return nil, fmt.Errorf("shrinking the tile library: tiles of %d pixels cannot be made from %d", size, l.size)
	}
	small := make([]Tile, len(l.tiles))
	for i, t := range l.tiles {
		small[i] = tileOf(t.Name, &image.RGBA{Pix: t.Pix, Stride: 4 * l.size, Rect: image.Rect(0, 0, l.size, l.size)}, size)
	}
	made, err := New(size, small)
	if err != nil {
		return nil, err
	}
	made.origin = l.Origin()
	return made, nil
}

// tileOf makes a tile of the square in the middle of a picture. Averaging by area in linear light keeps the mean colour of the
// square. A square smaller than the tile is enlarged.
func tileOf(name string, img *image.RGBA, size int) Tile {
	b := img.Bounds()
	side := min(b.Dx(), b.Dy())
	corner := b.Min.Add(image.Pt((b.Dx()-side)/2, (b.Dy()-side)/2))
	square := image.Rectangle{Min: corner, Max: corner.Add(image.Pt(side, side))}
	if g, err := picture.Average(img, square, size, size); err == nil {
		return Tile{Name: name, Pix: g.Image().Pix}
	}
	large := image.NewRGBA(image.Rect(0, 0, size, size))
	draw.CatmullRom.Scale(large, large.Rect, img, square, draw.Src, nil)
	return Tile{Name: name, Pix: large.Pix}
}

// ErrBadLibrary means that a stream is not a library as [Library.Write] writes
// it, or that it was damaged.
var ErrBadLibrary = errors.New("not a tile library")

// A library is written in gob: a head, and then its tiles.
type head struct {
	Size, Tiles int
	ID          string
}

// Write writes the library to a stream. [Read] restores it exactly.
func (l *Library) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	e := gob.NewEncoder(b)
	err := e.Encode(head{l.size, len(l.tiles), l.id})
	for _, t := range l.tiles {
		if err == nil {
			err = e.Encode(t)
		}
	}
	if err == nil {
		err = b.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the tile library: %w", err)
	}
	return nil
}

// Read reads a library that [Library.Write] wrote. It trusts nothing: numbers are compared with the limits of a library, memory is
// allocated as the tiles arrive, and the content must have the declared ID. The error is [ErrBadLibrary] for an
// invalid stream, or the error of r.
func Read(r io.Reader) (*Library, error) {
	s := &stream{r: io.LimitReader(r, MaxBytes+MaxTiles*2*maxName)}
	l, err := read(gob.NewDecoder(bufio.NewReader(s)))
	switch {
	case s.err != nil:
		return nil, fmt.Errorf("reading the tile library: %w", s.err)
	case err != nil:
		return nil, fmt.Errorf("reading the tile library: %w: %w", ErrBadLibrary, err)
	}
	return l, nil
}

func read(d *gob.Decoder) (*Library, error) {
	var h head
	if err := d.Decode(&h); err != nil {
		return nil, err
	}
	if err := checkBounds(h.Size, h.Tiles); err != nil {
		return nil, err
	}
	var list []Tile
	for range h.Tiles {
		var t Tile
		if err := d.Decode(&t); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	l, err := New(h.Size, list)
	if err == nil && l.id != h.ID {
		err = errors.New("its content does not match its ID: it was damaged or changed")
	}
	return l, err
}

// stream records the error of a reader below the decoder, so that a broken connection is not mistaken for a bad library.
type stream struct {
	r   io.Reader
	err error
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}
