// Package picture reads, measures and writes photographs in bounded
// memory.
//
// A photograph of up to [MaxPixels] pixels is read with [Decode]: a JPEG, PNG,
// GIF, WebP, TIFF or BMP. It looks
// at the header before it asks a decoder for a single pixel, and
// refuses what would not fit. HEIC and others that cannot be read are recognised
// and refused by name ([UnsupportedError]). The picture it returns stands upright: the
// orientation a telephone wrote into the EXIF block is applied as a view of the
// decoded pixels, not as a copy of them, and every width, height and coordinate
// in this package is the upright one.
//
// Three conventions hold throughout:
//
//   - Pixels are sRGB (IEC 61966-2-1). A picture with a colour profile of
//     primaries and tone curves (Display P3, Adobe RGB and the like) is shown in
//     sRGB by a view of the decoded pixels; other profiles are ignored, which
//     [Header] says.
//   - A transparent pixel is seen over white. The compositing is done on the
//     sRGB values, as web browsers do, and rounded to the depth of the picture
//     (8 or 16 bits).
//   - Colours are averaged in linear light, never in sRGB values, because the
//     eye sees the light of a distant tile mixed, not its file values.
//
// [Cells] measures the mean colour of every cell of a grid. [Plan] says how a
// picture is divided into cells and slices of whole rows of tiles. A [Writer] writes a slice a
// few rows at a time, and [Compose] puts slices together again. The functions keep no global state, and
// wait for the goroutines that they start; each is safe for concurrent use as long as
// nobody writes to the images it was given.
package picture
