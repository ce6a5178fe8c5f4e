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
	Format        string // "jpeg", "png" or "gif"
	Width, Height int    // in pixels, upright
	DecodeBytes   int64  // about how much memory Go's decoder needs, in bytes

	orientation orientation
	retained    int64 // bytes of DecodeBytes that the decoded picture keeps
}

// Inspect reads the header of a picture and applies the same limits as
// [Decode], without decoding any pixel. It reads ahead: to decode the picture
// afterwards, open it again. The errors are those of Decode. If a
// PNG has its EXIF block after the pixels, Width and Height are as stored.
func Inspect(r io.Reader) (Header, error) {
	h, _, err := inspect(newSource(r))
	return h, err
}

// inspect also returns a reader of the whole picture, header included.
func inspect(src *source) (Header, io.Reader, error) {
	s := &scanner{r: bufio.NewReaderSize(src, 1<<16)}
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
	if h.orientation.transposes() {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, io.MultiReader(bytes.NewReader(s.seen), s.r), nil
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
		return fmt.Errorf("%w: a %s of this kind with %d×%d pixels needs about %d MB to decode and the limit is %d MB: scale it down, or save it without progressive or interlaced coding",
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
	err error
}

func newSource(r io.Reader) *source { return &source{r: r} }

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
	r    *bufio.Reader
	seen []byte
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
	magic, err := s.r.Peek(len(pngSignature))
	switch {
	case bytes.HasPrefix(magic, []byte{0xff, markerSOI, 0xff}):
		return s.jpeg()
	case string(magic) == pngSignature:
		return s.png()
	case bytes.HasPrefix(magic, []byte("GIF87a")), bytes.HasPrefix(magic, []byte("GIF89a")):
		return s.gif()
	case err == io.EOF && len(magic) == 0:
		return Header{}, fmt.Errorf("%w: the file is empty", ErrNotPicture)
	}
	return Header{}, ErrNotPicture
}
