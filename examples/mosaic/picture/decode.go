// Package picture reads photographs, measures their colours, and writes mosaics.
//
// The standard library and x/image decode. This package compares the declared size of a file with
// its limits before it decodes, turns the picture as its EXIF orientation says, converts the
// colours of Display P3 and Adobe RGB to sRGB, and lays transparent pixels over white. The result
// of [Decode] is plain: opaque sRGB, upright, with its top left corner at (0, 0).
//
// Colours are averaged in linear light, never in sRGB values, because the eye sees the light of a
// distant tile mixed, not its file values.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/gif" // decoders
	_ "image/jpeg"
	_ "image/png"
	"io"
	"math"

	_ "golang.org/x/image/bmp"
	"golang.org/x/image/riff"
	_ "golang.org/x/image/tiff"
	"golang.org/x/image/vp8"
	"golang.org/x/image/vp8l"
	_ "golang.org/x/image/webp"
)

// Limits of pictures.
const (
	// MaxPixels is the largest picture that is read.
	MaxPixels = 50_000_000

	// MaxDecodeBytes is the maximum memory for decoding one picture. With the runtime, the tiles and a
	// few slices in addition, the process stays below 1 GiB.
	MaxDecodeBytes = 700_000_000

	// maxStream is the largest file that is read from a connection or a blob, and so kept in memory.
	maxStream = 100_000_000
)

// The errors a caller may want to tell apart with [errors.Is]. The error that
// wraps one of them describes in one line the fault of the picture.
var (
	// ErrNotPicture means that the data is not a picture of any known format.
	ErrNotPicture = errors.New("not a JPEG, PNG, GIF, WebP, TIFF or BMP picture")

	// ErrDamaged means that the data starts like a picture and then breaks a
	// rule of its format, ends early, or uses a feature that Go's decoders lack.
	ErrDamaged = errors.New("damaged or unusual picture")

	// ErrTooLarge means that the picture exceeds [MaxPixels] or [MaxDecodeBytes].
	ErrTooLarge = errors.New("picture too large")
)

// Header describes a picture by the start of its file.
type Header struct {
	Format        string // "jpeg", "png", "gif", "webp", "tiff" or "bmp"
	Width, Height int    // in pixels, upright
	DecodeBytes   int64  // about how much memory [Decode] needs, at most

	orientation int
}

// Inspect reads the facts that [Decode] needs before it decodes any pixel, and applies its limits.
// It reads ahead: to decode the picture afterwards, open it again. It returns the same errors as
// Decode.
func Inspect(r io.Reader) (Header, error) {
	s, err := open(r)
	if err != nil {
		return Header{}, err
	}
	h, err := s.header()
	return h, s.explain(err)
}

// Decode reads a JPEG, a PNG, the first frame of a GIF, a WebP that is not animated, the first page of a TIFF
// or a BMP. The errors are [ErrNotPicture], [ErrDamaged] and [ErrTooLarge] with an explanation, an
// [*UnsupportedError], or the error of r. They do not name the file, which only the caller knows. Broken
// metadata is never an error: the picture is then not turned, or its colours are not converted.
func Decode(r io.Reader) (*image.RGBA, error) {
	s, err := open(r)
	if err != nil {
		return nil, err
	}
	img, err := s.decode()
	return img, s.explain(err)
}

// source is a file that can be read more than once. It records the error of the reader below the decoders, so
// that a broken connection is not mistaken for a damaged picture.
type source struct {
	io.ReadSeeker
	start  int64
	memory int64 // of the file, if it was read from a stream
	err    error
}

func open(r io.Reader) (*source, error) {
	if file, ok := r.(io.ReadSeeker); ok {
		if start, err := file.Seek(0, io.SeekCurrent); err == nil { // a pipe refuses
			return &source{ReadSeeker: file, start: start}, nil
		}
	}
	data, err := io.ReadAll(io.LimitReader(r, maxStream+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the picture: %w", err)
	case len(data) > maxStream:
		return nil, fmt.Errorf("%w: its file has more than %d MB: scale it down, or save it as a JPEG", ErrTooLarge, maxStream/1_000_000)
	}
	return &source{ReadSeeker: bytes.NewReader(data), memory: int64(len(data))}, nil
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadSeeker.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

func (s *source) rewind() error {
	_, err := s.Seek(s.start, io.SeekStart)
	return err
}

// explain replaces an error that the reader caused.
func (s *source) explain(err error) error {
	if err != nil && s.err != nil {
		return fmt.Errorf("reading the picture: %w", s.err)
	}
	return err
}

// head returns the first bytes of the file.
func (s *source) head(n int) ([]byte, error) {
	if err := s.rewind(); err != nil {
		return nil, err
	}
	b := make([]byte, n)
	k, err := io.ReadFull(s, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return b[:k], errors.Join(err, s.rewind())
}

// header reads the header and compares it with the limits.
func (s *source) header() (h Header, err error) {
	defer recovered(&err)
	head, err := s.head(1 << 18)
	if err != nil {
		return h, err
	}
	if bytes.HasPrefix(head, []byte("II*\x00\x10\x00\x00\x00CR")) { // it looks like a TIFF
		return h, &UnsupportedError{"RAW", develop}
	}
	config, format, err := image.DecodeConfig(s)
	switch {
	case errors.Is(err, image.ErrFormat) && len(head) == 0:
		return h, fmt.Errorf("%w: the file is empty", ErrNotPicture)
	case errors.Is(err, image.ErrFormat):
		return h, ErrNotPicture
	case errors.Is(err, ErrUnsupported):
		return h, err
	case err != nil:
		return h, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	h = Header{Format: format, Width: config.Width, Height: config.Height}
	switch pixels := int64(h.Width) * int64(h.Height); {
	case h.Width <= 0 || h.Height <= 0:
		return h, fmt.Errorf("%w: it declares a size of %d×%d", ErrDamaged, h.Width, h.Height)
	case pixels/int64(h.Width) != int64(h.Height) || pixels > MaxPixels:
		return h, fmt.Errorf("%w: it has %d×%d pixels and the limit is %d megapixels: scale it down first", ErrTooLarge, h.Width, h.Height, MaxPixels/1_000_000)
	default:
		h.DecodeBytes = s.memory + pixels*bytesPerPixel(format, config.ColorModel, head)
	}
	if h.DecodeBytes > MaxDecodeBytes {
		return h, fmt.Errorf("%w: a %s of this kind with %d×%d pixels needs about %d MB to decode and the limit is %d MB: scale it down, or save it without progressive or interlaced coding",
			ErrTooLarge, format, h.Width, h.Height, h.DecodeBytes/1_000_000, MaxDecodeBytes/1_000_000)
	}
	var exif []byte
	if format == "webp" {
		if exif, err = s.checkFrame(h); err != nil {
			return h, err
		}
	}
	if h.orientation = s.orientation(format, exif); h.orientation > 1 {
		h.DecodeBytes += 4 * int64(h.Width) * int64(h.Height) // another copy
	}
	if h.orientation >= 5 {
		h.Width, h.Height = h.Height, h.Width
	}
	return h, s.rewind()
}

// bytesPerPixel is how much memory the decoder takes, and then the copy that Decode returns.
func bytesPerPixel(format string, model color.Model, head []byte) int64 {
	const result = 4
	kept := int64(4)
	switch model {
	case color.GrayModel:
		kept = 1
	case color.Gray16Model:
		kept = 2
	case color.YCbCrModel:
		kept = 3
	case color.RGBA64Model, color.NRGBA64Model:
		kept = 8
	default:
		if _, ok := model.(color.Palette); ok {
			kept = 1
		}
	}
	switch {
	case format == "jpeg" && progressive(head):
		return kept + 4*max(kept, 3) + result // the coefficients
	case format == "jpeg" && kept == 4:
		return 2*kept + result // CMYK, which is converted
	case format == "png" && len(head) > 28 && head[28] == 1: // interlaced
		return 2*kept + result
	case format == "png", format == "bmp":
		return max(kept, 4) + result // a transparent colour makes grey RGBA
	case format == "tiff":
		return 3*kept + result + 4 // it may be one strip, unpacked beside its packed form
	}
	return kept + result
}

// progressive finds the frame header of a JPEG (ITU-T T.81, B.1.1).
func progressive(head []byte) bool {
	for i := 2; i+4 < len(head) && head[i] == 0xff; {
		switch m := head[i+1]; {
		case m == 0xff:
			i++ // a fill byte
		case m >= 0xc0 && m <= 0xc3:
			return m == 0xc2
		default:
			i += 2 + int(head[i+2])<<8 + int(head[i+3])
		}
	}
	return true // further behind than in any photograph: the worst is assumed
}

// checkFrame refuses a WebP if its frame is not as large as its header declares. It returns the
// EXIF block.
func (s *source) checkFrame(h Header) (exif []byte, err error) {
	if err := s.rewind(); err != nil {
		return nil, err
	}
	_, chunks, err := riff.NewReader(s)
	for err == nil {
		var id riff.FourCC
		var n uint32
		var data io.Reader
		if id, n, data, err = chunks.Next(); err != nil {
			break
		}
		width, height := h.Width, h.Height
		switch string(id[:]) {
		case "VP8 ":
			d := vp8.NewDecoder()
			d.Init(data, int(n))
			var frame vp8.FrameHeader
			frame, err = d.DecodeFrameHeader()
			width, height = frame.Width, frame.Height
		case "VP8L":
			var config image.Config
			config, err = vp8l.DecodeConfig(data)
			width, height = config.Width, config.Height
		case "ANIM", "ANMF":
			return nil, &UnsupportedError{"an animated WebP", "save one of its pictures as JPEG or PNG first"}
		case "EXIF":
			exif, err = io.ReadAll(io.LimitReader(data, 1<<20))
			exif = bytes.TrimPrefix(exif, []byte("Exif\x00\x00")) // which some programs write, as in a JPEG
		}
		if err == nil && (width != h.Width || height != h.Height) {
			return nil, fmt.Errorf("%w: it declares a size of %d×%d and its frame has %d×%d", ErrDamaged, h.Width, h.Height, width, height)
		}
	}
	if errors.Is(err, io.EOF) {
		return exif, nil
	}
	return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
}

func (s *source) decode() (_ *image.RGBA, err error) {
	defer recovered(&err)
	h, err := s.header()
	if err != nil {
		return nil, err
	}
	convert := s.profile(h.Format)
	if err := s.rewind(); err != nil {
		return nil, err
	}
	var r io.Reader = s
	if h.Format == "jpeg" {
		r = &scanLimit{r: s, left: maxScans(h.Width, h.Height)}
	}
	img, _, err := image.Decode(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if y, ok := img.(*image.YCbCr); ok && h.Format == "webp" {
		fullRange(y)
	} else if y, ok := img.(*image.NYCbCrA); ok {
		fullRange(&y.YCbCr)
	}
	b := img.Bounds()
	if h.orientation >= 5 {
		h.Width, h.Height = h.Height, h.Width // as stored
	}
	if !b.In(image.Rect(0, 0, h.Width, h.Height)) { // a frame of a GIF may be smaller
		return nil, fmt.Errorf("%w: it declares a size of %d×%d and has pixels at %v", ErrDamaged, h.Width, h.Height, b)
	}
	flat := image.NewRGBA(image.Rect(0, 0, h.Width, h.Height))
	if o, ok := img.(interface{ Opaque() bool }); !ok || b != flat.Rect || !o.Opaque() {
		draw.Draw(flat, flat.Rect, image.White, image.Point{}, draw.Src)
	}
	limitToAlpha(img)
	draw.Draw(flat, b, img, b.Min, draw.Over)
	convert(flat.Pix)
	return turned(flat, h.orientation), nil
}

// recovered makes an error of a panic. The decoders are given untrusted bytes: a panic of one must not end the program
// and the work on other pictures.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: the decoder failed: %v", ErrDamaged, p)
	}
}

// fullRange stretches the video levels of a WebP (RFC 6386, section 9.2: luma of 16 to 235, chroma of 16 to
// 240) to the levels of a JPEG, as image.YCbCr has them. x/image/webp does not.
func fullRange(img *image.YCbCr) {
	var luma, chroma [256]uint8
	for i := range 256 {
		luma[i] = uint8(min(max(math.Round(float64(i-16)*255/219), 0), 255))
		chroma[i] = uint8(min(max(math.Round(128+float64(i-128)*255/224), 0), 255))
	}
	for i, v := range img.Y {
		img.Y[i] = luma[v]
	}
	for i := range img.Cb {
		img.Cb[i], img.Cr[i] = chroma[img.Cb[i]], chroma[img.Cr[i]]
	}
}

// limitToAlpha lowers colours above their alpha, which a TIFF may have and no image.RGBA.
func limitToAlpha(img image.Image) {
	switch img := img.(type) {
	case *image.RGBA:
		for p := img.Pix; len(p) >= 4; p = p[4:] {
			p[0], p[1], p[2] = min(p[0], p[3]), min(p[1], p[3]), min(p[2], p[3])
		}
	case *image.RGBA64:
		for p := img.Pix; len(p) >= 8; p = p[8:] {
			for c := 0; c < 6; c += 2 {
				if p[c] > p[6] || p[c] == p[6] && p[c+1] > p[7] {
					copy(p[c:c+2], p[6:8])
				}
			}
		}
	}
}

// maxScans is how many scans of a JPEG are decoded. Real progressive files have some 10. Every scan goes through the whole picture, and
// a few bytes are enough for one: without a limit a small file could keep a processor busy for hours.
func maxScans(width, height int) int { return 100 + MaxPixels*100/(width*height) }

var errManyScans = errors.New("it has too many scans: save it as a baseline JPEG")

// scanLimit reads a JPEG, and fails after too many scans. The compressed data of a scan never looks like the beginning of another.
type scanLimit struct {
	r    io.Reader
	left int
	last byte
}

func (s *scanLimit) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for _, b := range p[:n] {
		if s.last == 0xff && b == 0xda {
			s.left--
		}
		s.last = b
	}
	if s.left < 0 {
		return 0, errManyScans
	}
	return n, err
}

// UnsupportedError names the format of a picture that cannot be read, and a way out.
type UnsupportedError struct {
	Format string // such as "HEIC", for people
	Advice string // a way out, without the first capital letter and the full stop
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("%v: it is %s, which this program cannot read: %s", ErrUnsupported, e.Format, e.Advice)
}

// Unwrap returns [ErrUnsupported].
func (e *UnsupportedError) Unwrap() error { return ErrUnsupported }

// ErrUnsupported means that the data is a picture of a format that this package recognises and cannot read, such as
// HEIC. The error is an [*UnsupportedError].
var ErrUnsupported = errors.New("unsupported picture format")

const develop = "develop it and save it as JPEG or TIFF first"

// Unsupported formats are registered too, with a decoder that names a way out. The first match
// counts, so the film comes last.
func init() {
	const (
		convert = "save it as JPEG or PNG first"
		heic    = "save it as JPEG first (heif-convert IN OUT.jpg; on a Mac: sips -s format jpeg IN --out OUT.jpg; an iPhone takes JPEG with Settings > Camera > Formats > Most Compatible)"
	)
	for _, f := range []struct {
		format, advice string
		magics         []string
	}{
		{"JPEG XL", convert, []string{"\xff\x0a", "????JXL "}},
		{"JPEG 2000", convert, []string{"\xff\x4f\xff\x51", "????jP  "}},
		{"a Photoshop document", convert, []string{"8BPS"}},
		{"RAW", develop, []string{"FUJIFILMCCD-RAW", "IIRO", "IIU\x00", "FOVb", "\x00MRM", "????ftypcrx "}},
		{"AVIF", convert, []string{"????ftypavi"}},
		{"HEIC", heic, []string{"????ftyphe"}},
		{"HEIF", heic, []string{"????ftypmif", "????ftypmsf"}},
		{"BigTIFF", convert, []string{"II\x2b\x00", "MM\x00\x2b"}},
		{"a film", "take a picture from it first", []string{"????ftyp"}},
	} {
		config := func(io.Reader) (image.Config, error) { return image.Config{}, &UnsupportedError{f.format, f.advice} }
		for _, magic := range f.magics {
			image.RegisterFormat(f.format, magic, nil, config)
		}
	}
}
