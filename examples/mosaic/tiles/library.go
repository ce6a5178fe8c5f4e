package tiles

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

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
	Name string         // of a tile from a folder: the path of the file within it, with slashes
	Mean picture.Linear // the mean colour, in linear light, before scaling

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
	origin string // the ID of the library that it was shrunk from; "" for none
}

// New makes a library of tiles of size×size pixels, in any order. It keeps the
// slice and the pixels. It fails if a size, name, colour or number is out of
// bounds, or a name occurs twice.
func New(size int, tiles []Tile) (*Library, error) {
	if err := checkBounds(size, len(tiles)); err != nil {
		return nil, err
	}
	slices.SortFunc(tiles, func(a, b Tile) int { return cmp.Compare(a.Name, b.Name) })
	for i, t := range tiles {
		if i > 0 && t.Name == tiles[i-1].Name {
			return nil, fmt.Errorf("making the tile library: two tiles are called %q", t.Name)
		}
		if err := t.check(size); err != nil {
			return nil, err
		}
	}
	return &Library{size: size, tiles: tiles, id: contentID(size, tiles)}, nil
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

func (t Tile) check(size int) error {
	if t.Name == "" || len(t.Name) > maxName {
		return fmt.Errorf("making the tile library: the name of a tile has %d bytes: it needs 1 to %d", len(t.Name), maxName)
	}
	for _, v := range [3]float64{t.Mean.R, t.Mean.G, t.Mean.B} {
		if !(v >= 0 && v <= 1) { // not a number fails too
			return fmt.Errorf("making the tile library: the mean colour of %q has an amount of light of %v: it must be 0 to 1", t.Name, v)
		}
	}
	if len(t.Pix) != size*size*4 {
		return fmt.Errorf("making the tile library: %q has %d bytes of pixels instead of %d", t.Name, len(t.Pix), size*size*4)
	}
	for i := 3; i < len(t.Pix); i += 4 {
		if t.Pix[i] != 0xff {
			return fmt.Errorf("making the tile library: %q has transparent pixels", t.Name)
		}
	}
	return nil
}

// Size is the side of every tile in pixels.
func (l *Library) Size() int { return l.size }

// Len is the number of tiles.
func (l *Library) Len() int { return len(l.tiles) }

// Tile gives tile i, 0 to Len-1 in the order of names (as bytes).
func (l *Library) Tile(i int) Tile { return l.tiles[i] }

// ID identifies the content: the SHA-256, in hexadecimal, of the size and of
// every tile's name, mean and pixels. Libraries with the same tiles have the
// same ID wherever they were made. It is not the hash of what Write writes.
func (l *Library) ID() string { return l.id }

func contentID(size int, tiles []Tile) string {
	h := sha256.New()
	var b []byte
	b = append(b, "millrace tiles 1\n"...)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, uint32(len(tiles)))
	for _, t := range tiles {
		b = binary.BigEndian.AppendUint32(b, uint32(len(t.Name)))
		b = append(b, t.Name...)
		for _, v := range [3]float64{t.Mean.R, t.Mean.G, t.Mean.B} {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(v))
		}
		h.Write(b)
		h.Write(t.Pix)
		b = b[:0]
	}
	return hex.EncodeToString(h.Sum(nil))
}
