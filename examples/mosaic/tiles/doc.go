// Package tiles is the library of small pictures that a photo mosaic is laid
// from.
//
// A [Library] holds tiles of one size. It comes from a folder of photographs
// ([FromDir]), is generated ([Generate]), or comes from a stream that another process
// wrote ([Read], [Library.Write]). [Library.Nearest] finds the tile whose mean
// colour looks most like a given colour, and [Library.Render] lays a whole grid
// of cells.
//
// Colours are compared by ΔE*ab of CIE 1976 (CIE 15), the distance in CIELAB
// under the illuminant D65 for the 2° observer. The mean colour of a tile is
// taken in linear light, over the square that is cropped from the middle of the
// photograph, before that is scaled to the size of a tile.
//
// A Library never changes after it was made and may be used by any number of
// goroutines at once.
package tiles
