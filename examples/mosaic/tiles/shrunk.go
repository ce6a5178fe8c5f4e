package tiles

import (
	"fmt"
	"image"
	"slices"
)

// Shrink makes a library of the same tiles, in the same order, of size×size pixels. It fails if size is not 1 to that of
// this library. Its ID is its own, and its Origin that of this library.
func (l *Library) Shrink(size int) (*Library, error) {
	if size < 1 || size > l.size {
		return nil, fmt.Errorf("shrinking the tile library: tiles of %d pixels cannot be made from %d", size, l.size)
	}
	small := slices.Clone(l.tiles)
	for i := range small {
		img := &image.RGBA{Pix: small[i].Pix, Stride: 4 * l.size, Rect: image.Rect(0, 0, l.size, l.size)}
		t, err := fromImage(small[i].Name, img, size)
		if err != nil {
			return nil, err
		}
		small[i].Pix = t.Pix
	}
	made, err := New(size, small)
	if err != nil {
		return nil, err
	}
	made.origin = l.Origin()
	return made, nil
}

// Origin is the ID of the library that this one was shrunk from, or its own ID.
func (l *Library) Origin() string {
	if l.origin != "" {
		return l.origin
	}
	return l.id
}
