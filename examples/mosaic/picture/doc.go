// Package picture reads, measures, cuts and writes photographs in bounded
// memory.
//
// A photograph of up to [MaxPixels] pixels is read with [Decode], which looks
// at the header before it asks the standard library for a single pixel, and
// refuses what would not fit. The picture it returns stands upright: the
// orientation a telephone wrote into the EXIF block is applied as a view of the
// decoded pixels, not as a copy of them, and every width, height and coordinate
// in this package is the upright one.
//
// Three conventions hold throughout:
//
//   - Pixels are sRGB (IEC 61966-2-1); colour profiles are not applied.
//   - A transparent pixel is seen over white. The compositing is done on the
//     sRGB values, as web browsers do, and rounded to the depth of the picture
//     (8 or 16 bits).
//   - Colours are averaged in linear light, never in sRGB values, because the
//     eye sees the light of a distant tile mixed, not its file values.
//
// [Cells] measures the mean colour of every cell of a grid. [Plan] says how a
// picture is divided into slices of whole rows of tiles, [Cut] writes the
// slices and [Compose] puts slices together again. The functions neither start
// goroutines nor keep global state; each is safe for concurrent use as long as
// nobody writes to the images it was given.
package picture
