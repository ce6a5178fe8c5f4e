package picture

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Header describes a picture by the start of its file.
type Header struct {
	Format        string // "jpeg", "png", "gif", "webp", "tiff" or "bmp"
	Width, Height int    // in pixels, upright
	DecodeBytes   int64  // about how much memory Go's decoder needs, in bytes

	// Profile is the name of the colour profile, such as "Display P3", that [Decode] converts from. "" means
	// that the pixels are taken as sRGB.
	Profile string

	// ProfileIgnored says, for people, why the colour profile of the picture is not applied, so that its
	// colours may be off. "" means that there is nothing to say.
	ProfileIgnored string

	orientation orientation
	retained    int64      // bytes of DecodeBytes that the decoded picture keeps
	profile     *transform // to sRGB; nil for none
	exifBehind  bool       // a WebP says that it has an EXIF block behind the pixels
	icc         []byte     // the colour profile as stored, while the header is read; nil for none
	space       string     // of the stored pixels
}

// Inspect reads the header of a picture and applies the same limits as
// [Decode], without decoding any pixel. It reads ahead: to decode the picture
// afterwards, open it again. The errors are those of Decode. If a
// PNG has its EXIF block after the pixels, Width and Height are as stored.
//
// The directory of a TIFF may lie at its end. Of a file it is read there; a
// reader that is not also an io.ReaderAt and an io.Seeker is read up to it and
// kept in memory.
func Inspect(r io.Reader) (Header, error) {
	h, _, err := inspect(newSource(r), true)
	return h, err
}

// inspect also returns a reader of the whole picture, header included. behind says whether to look for the
// orientation of a WebP behind its pixels, which uses up the reader.
func inspect(src *source, behind bool) (Header, io.Reader, error) {
	s := &scanner{r: bufio.NewReaderSize(src, 1<<16), src: src, behind: behind}
	h, err := s.header()
	switch {
	case src.err != nil:
		return Header{}, nil, fmt.Errorf("reading the picture: %w", src.err)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return Header{}, nil, fmt.Errorf("%w: the file ends within its header", ErrDamaged)
	case err != nil:
		return Header{}, nil, err
	}
	if err := h.check(); err != nil {
		return Header{}, nil, err
	}
	h.readProfile()
	if h.orientation.transposes() {
		h.Width, h.Height = h.Height, h.Width
	}
	if s.tiff != nil {
		return h, s.tiff, nil
	}
	var rest io.Reader = s.r
	if h.Format == "jpeg" {
		rest = &scanLimit{r: rest, left: maxScans(h.Width, h.Height)}
	}
	return h, io.MultiReader(bytes.NewReader(s.seen), rest), nil
}

// check compares the declared size with the limits.
func (h Header) check() error {
	if h.Width <= 0 || h.Height <= 0 {
		return fmt.Errorf("%w: it declares a size of %d×%d", ErrDamaged, h.Width, h.Height)
	}
	pixels := int64(h.Width) * int64(h.Height)
	if pixels > MaxPixels {
		return fmt.Errorf("%w: it has %d×%d pixels (%s megapixels) and the limit is 50 megapixels: scale it down first",
			ErrTooLarge, h.Width, h.Height, tenths(pixels, 1_000_000))
	}
	if h.DecodeBytes > MaxDecodeBytes {
		return fmt.Errorf("%w: a %s of this kind with %d×%d pixels needs about %d MB to decode and the limit is %d MB: scale it down, or save it without progressive or interlaced coding, a TIFF in many strips",
			ErrTooLarge, h.Format, h.Width, h.Height, h.DecodeBytes/1_000_000, MaxDecodeBytes/1_000_000)
	}
	return nil
}

// tenths writes n/unit with one digit, rounded up so that a size just over a
// limit does not read as the limit itself.
func tenths(n, unit int64) string {
	t := (n*10 + unit - 1) / unit
	return fmt.Sprintf("%d.%d", t/10, t%10)
}

// source records the error of the reader below the decoders, so that a broken connection is not
// mistaken for a damaged picture.
type source struct {
	r   io.Reader
	at  io.ReaderAt // random access to the same bytes, or nil
	err error
}

func newSource(r io.Reader) *source { return &source{r: r, at: directly(r)} }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// maxHeader is how much may precede the first pixel. A real camera writes a few
// hundred kilobytes at most; the header is kept in memory until it is decoded.
const maxHeader = 16 << 20

var errLongHeader = fmt.Errorf("%w: more than %d MiB of metadata before the first pixel", ErrDamaged, maxHeader>>20)

// scanner reads a header and keeps every byte of it for the decoder proper.
type scanner struct {
	r      *bufio.Reader
	seen   []byte
	src    *source
	behind bool // see inspect

	tiff io.Reader // random access to the whole file instead of seen and r, if it is a TIFF
}

// take reads the next n bytes. The slice is valid until the next call.
func (s *scanner) take(n int) ([]byte, error) {
	if n > maxHeader-len(s.seen) {
		return nil, errLongHeader
	}
	start := len(s.seen)
	s.seen = append(s.seen, make([]byte, n)...)
	got, err := io.ReadFull(s.r, s.seen[start:])
	s.seen = s.seen[:start+got]
	return s.seen[start:], err
}

func (s *scanner) header() (Header, error) {
	magic, err := s.r.Peek(64)
	no := unsupported(magic)
	switch {
	case bytes.HasPrefix(magic, []byte{0xff, markerSOI, 0xff}):
		return s.jpeg()
	case bytes.HasPrefix(magic, []byte(pngSignature)):
		return s.png()
	case bytes.HasPrefix(magic, []byte("GIF87a")), bytes.HasPrefix(magic, []byte("GIF89a")):
		return s.gif()
	case len(magic) >= 12 && string(magic[:4]) == "RIFF" && string(magic[8:12]) == "WEBP":
		return s.webp()
	case bytes.HasPrefix(magic, []byte("II*\x00")), bytes.HasPrefix(magic, []byte("MM\x00*")):
		return s.openTIFF()
	case isBMP(magic):
		return s.bmp()
	case no != nil:
		return Header{}, no
	case err == io.EOF && len(magic) == 0:
		return Header{}, fmt.Errorf("%w: the file is empty", ErrNotPicture)
	}
	return Header{}, ErrNotPicture
}

// openTIFF reads the directory by random access: that of the file, or to a copy of the stream in memory.
func (s *scanner) openTIFF() (Header, error) {
	f := watched{s.src.at, s.src}
	if s.src.at == nil {
		f.r = &spool{r: s.r}
	}
	s.tiff = f
	return readTIFF(f, s.src.at == nil)
}
