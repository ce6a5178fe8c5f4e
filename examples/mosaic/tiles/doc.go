// Package tiles is the library of small pictures that a photo mosaic is laid
// from.
//
// A [Library] holds tiles of one size. It comes from a folder of photographs
// ([FromDir]), is generated ([Generate]), or comes from a stream that another process
// wrote ([Read], [Library.Write]). [Previews] has a larger picture of each tile, for people. Which
// tile is laid where is for package layout.
//
// The mean colour of a tile is taken in linear light, over the square that is
// cropped from the middle of the photograph, before that is scaled to the size
// of a tile.
//
// A Library never changes after it was made and may be used by any number of
// goroutines at once.
package tiles
