package picture

import (
	"bytes"
	"encoding/binary"
	hexadecimal "encoding/hex"
	"errors"
	"image"
	"image/color"
	"image/draw"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/image/bmp"
	xtiff "golang.org/x/image/tiff"

	"github.com/millrace/millrace/internal/suitetest"
)

// The same picture of 40×24 pixels in four kinds of WebP, as cwebp writes them: black and white above red and blue. The
// blue is transparent in those with alpha.
var webps = map[string][]byte{
	"lossy":          unhex("52494646a2000000574542505650382096000000b005009d012a280018003e2d128742a1a10d52000c016259002e44a012603f95fe335dffdd807f6bfe6607e7efd881f338f19c171b0000fefff0fafde0e9ffe422dfee4f8468d26a1fff12690fa36fff893487d19e7fff61b17ff765619adff9b8fd1a87efff438c39c8f2327fe3344821caa739ffe4dbfd334abffcde7de10bca84cf3d0c3dd6de0cb0b352effba5de3554775c0000"),
	"lossy alpha":    unhex("52494646d800000057454250565038580a00000010000000270000170000414c504816000000010f30ff111142204038f05f2bc04044ff27a0b9b001565038209c000000d005009d012a280018003e2d108742a1a10d56ff000c016259002f43a012603f95fe335dffdd92ff6bfe6605feb34078d2bf966d7434d000fefff0fafde12fffc845bffb3f32b390f5fffe24d21f6947ff893487da3cffff61b17ffa5138c45ff9b8fd1b67cfff43a59ce4e9aabff8cd1208f41fdccffc9b7fa6caf7ff9bda7e1129a48925f66c4342054530739c2a609eb587ffed896c7e00000000"),
	"lossless":       unhex("5249464636000000574542505650384c290000002f27c005001f30fff32f2028f83fbaf90f0a2ea026601a069398c464476efe88fe4f80386c139a6d0000"),
	"lossless alpha": unhex("5249464630000000574542505650384c240000002f27c005101f30fff33ffff31f80525013300d83494c62b223377f44ff27c01cb609c536"),
}

func unhex(s string) []byte {
	b, err := hexadecimal.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func riffFile(chunks ...[]byte) []byte {
	body := append([]byte("WEBP"), bytes.Join(chunks, nil)...)
	return append(binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(len(body))), body...)
}

func riffChunk(name string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint32([]byte(name), uint32(len(data)))
	b = append(b, data...)
	return append(b, make([]byte, len(data)&1)...)
}

// vp8x is the extended header of a WebP.
func vp8x(flags byte, w, h int) []byte {
	return riffChunk("VP8X", []byte{flags, 0, 0, 0, byte(w - 1), byte((w - 1) >> 8), byte((w - 1) >> 16), byte(h - 1), byte((h - 1) >> 8), byte((h - 1) >> 16)})
}

// extended puts chunks before and behind the pixels of a simple WebP.
func extended(file []byte, flags byte, before, behind []byte) []byte {
	return riffFile(vp8x(flags, 40, 24), before, file[12:], behind)
}

func TestDecodeWebP(t *testing.T) {
	for name, file := range webps {
		img, err := Decode(iotest.OneByteReader(bytes.NewReader(file)))
		if err != nil {
			t.Fatal(err)
		}
		if img.Bounds() != image.Rect(0, 0, 40, 24) {
			t.Fatalf("%s: bounds: got %v, want 40×24", name, img.Bounds())
		}
		blue, most := rgb8{0, 0, 255}, 0
		if strings.Contains(name, "alpha") {
			blue = rgb8{255, 255, 255}
		}
		if strings.Contains(name, "lossy") {
			most = 6 // video levels taken for full ones would be off by 16
		}
		for p, want := range map[image.Point]rgb8{{X: 5, Y: 5}: {0, 0, 0}, {X: 34, Y: 5}: {255, 255, 255}, {X: 5, Y: 19}: {255, 0, 0}, {X: 34, Y: 19}: blue} {
			if got := at8(img, p.X, p.Y); !alike(got, want, most) {
				t.Errorf("%s: pixel %v: got %v, want %v", name, p, got, want)
			}
		}
	}
}

func TestWebPStandsUpright(t *testing.T) {
	for name, file := range webps {
		if name == "lossy alpha" {
			continue // has an extended header already
		}
		stored, err := Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		for o := 1; o <= 8; o++ {
			for kind, exif := range map[string][]byte{"plain": tiff(uint16(o)), "as in a JPEG": append([]byte("Exif\x00\x00"), tiff(uint16(o))...)} {
				chunk := riffChunk("EXIF", exif)
				xmp := riffChunk("XMP ", []byte("odd")) // is padded
				for where, turned := range map[string][]byte{
					"behind": extended(file, 1<<3, nil, append(xmp, chunk...)), "before": extended(file, 1<<3, chunk, nil),
				} {
					got, err := Decode(iotest.OneByteReader(bytes.NewReader(turned)))
					if err != nil {
						t.Fatalf("%s, %s, %s: got error %v, want none", name, kind, where, err)
					}
					samePixels(t, got, upstood(stored, o))
					h, err := Inspect(bytes.NewReader(turned))
					if size := got.Bounds().Size(); err != nil || image.Pt(h.Width, h.Height) != size {
						t.Errorf("%s, %s, %s: Inspect: got %d×%d and error %v, want as Decode %v", name, kind, where, h.Width, h.Height, err, size)
					}
				}
			}
		}
	}
}

// entry is one of a TIFF's directory, of SHORT or LONG numbers, or BYTE for bytes.
type entry struct {
	tag     uint16
	kind    uint16
	numbers []uint32
	bytes   []byte
}

func short(tag uint16, n ...uint32) entry { return entry{tag: tag, kind: 3, numbers: n} }
func long(tag uint16, n ...uint32) entry  { return entry{tag: tag, kind: 4, numbers: n} }

// tiffFile writes a TIFF whose pixels lie at offset 8, before the directory, as many programs do.
func tiffFile(order binary.AppendByteOrder, pixels []byte, entries ...entry) []byte {
	b := []byte("II*\x00")
	if order == binary.BigEndian {
		b = []byte("MM\x00*")
	}
	var values, list []byte
	start := uint32(8 + len(pixels))
	end := start + 2 + 12*uint32(len(entries)) + 4
	for _, e := range entries {
		v, n := e.bytes, len(e.bytes)
		for _, x := range e.numbers {
			n++
			if e.kind == 3 {
				v = order.AppendUint16(v, uint16(x))
			} else {
				v = order.AppendUint32(v, x)
			}
		}
		list = order.AppendUint16(list, e.tag)
		list = order.AppendUint16(list, e.kind)
		list = order.AppendUint32(list, uint32(n))
		if len(v) > 4 {
			list = order.AppendUint32(list, end+uint32(len(values)))
			values = append(values, v...)
		} else {
			list = append(list, append(v, 0, 0, 0, 0)[:4]...)
		}
	}
	b = order.AppendUint32(b, start)
	b = append(b, pixels...)
	b = order.AppendUint16(b, uint16(len(entries)))
	b = append(append(b, list...), 0, 0, 0, 0)
	return append(b, values...)
}

// rgbTIFF is a TIFF of w×h pixels of noise, with further entries, in the order of their tags.
func rgbTIFF(order binary.AppendByteOrder, w, h int, more ...entry) []byte {
	pixels := make([]byte, 3*w*h)
	noisy(1, pixels)
	entries := []entry{
		long(256, uint32(w)), long(257, uint32(h)), short(258, 8, 8, 8), short(259, 1), short(262, 2),
		long(273, 8), long(279, uint32(len(pixels))),
	}
	for _, m := range more {
		at := len(entries)
		for i, e := range entries {
			if e.tag >= m.tag {
				at = i
				break
			}
		}
		if at < len(entries) && entries[at].tag == m.tag {
			entries[at] = m
			continue
		}
		entries = append(entries[:at], append([]entry{m}, entries[at:]...)...)
	}
	return tiffFile(order, pixels, entries...)
}

func TestTIFFStandsUpright(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		stored, err := Decode(bytes.NewReader(rgbTIFF(order, 21, 13)))
		if err != nil {
			t.Fatal(err)
		}
		for o := range uint32(10) {
			file := rgbTIFF(order, 21, 13, short(274, o))
			want := int(o)
			if o < 1 || o > 8 {
				want = 1
			}
			for kind, r := range map[string]func() io.Reader{
				"file": func() io.Reader { return bytes.NewReader(file) }, "stream": func() io.Reader { return iotest.OneByteReader(bytes.NewReader(file)) },
				"middle of a file": func() io.Reader {
					r := bytes.NewReader(append([]byte("before"), file...))
					if _, err := r.Seek(6, io.SeekStart); err != nil {
						t.Fatal(err)
					}
					return r
				},
			} {
				got, err := Decode(r())
				if err != nil {
					t.Fatalf("%s: got error %v, want none", kind, err)
				}
				samePixels(t, got, upstood(stored, want))
				h, err := Inspect(r())
				if size := got.Bounds().Size(); err != nil || image.Pt(h.Width, h.Height) != size {
					t.Errorf("%s: Inspect: got %d×%d and error %v, want as Decode %v", kind, h.Width, h.Height, err, size)
				}
			}
		}
	}
}

// encodedAs writes an image as TIFF or BMP.
func encodedAs(t testing.TB, format string, img image.Image) []byte {
	t.Helper()
	var (
		b   bytes.Buffer
		err error
	)
	switch format {
	case "bmp":
		err = bmp.Encode(&b, img)
	case "tiff":
		err = xtiff.Encode(&b, img, nil)
	case "deflated tiff":
		err = xtiff.Encode(&b, img, &xtiff.Options{Compression: xtiff.Deflate, Predictor: true})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestDecodeTIFFAndBMP(t *testing.T) {
	list := photos(33, 17)
	opaque := image.NewNRGBA(image.Rect(0, 0, 33, 17))
	draw.Draw(opaque, opaque.Rect, list["YCbCr444"], image.Point{}, draw.Src)
	list["opaque"] = opaque
	for name, img := range list {
		if name == "custom" || strings.HasPrefix(name, "YCbCr") || name == "CMYK" {
			continue // the encoders convert these in their own way
		}
		for _, format := range []string{"bmp", "tiff", "deflated tiff"} {
			if format == "bmp" && name != "Gray" && name != "opaque" {
				continue // the BMP that this writes has neither 16 bits nor opacity
			}
			if name == "Paletted" {
				img = opaquePalette(img.(*image.Paletted))
			}
			file := encodedAs(t, format, img)
			got, err := Decode(iotest.OneByteReader(bytes.NewReader(file)))
			if err != nil {
				t.Errorf("%s as %s: got error %v, want none", name, format, err)
				continue
			}
			want := OverWhite(img)
			for i, p := range got.Pix {
				if d := int(p) - int(want.Pix[i]); d > 1 || d < -1 {
					t.Errorf("%s as %s: byte %d: got %d, want %d", name, format, i, p, want.Pix[i])
					break
				}
			}
		}
	}
}

func opaquePalette(img *image.Paletted) image.Image {
	opaque := *img
	opaque.Palette = nil
	for _, c := range img.Palette {
		n := c.(color.NRGBA)
		n.A = 0xff
		opaque.Palette = append(opaque.Palette, n)
	}
	return &opaque
}

// A TIFF may claim that a colour is brighter than its opacity allows.
func TestTIFFWithColoursAboveTheirAlpha(t *testing.T) {
	for bits, pixels := range map[uint32][]byte{8: {200, 100, 0, 100}, 16: {200, 0, 100, 0, 0, 0, 100, 0}} {
		file := tiffFile(binary.BigEndian, pixels, long(256, 1), long(257, 1), short(258, bits, bits, bits, bits), short(259, 1),
			short(262, 2), long(273, 8), long(279, uint32(len(pixels))), short(338, 1))
		img, err := Decode(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := at8(img, 0, 0), (rgb8{255, 255, 155}); !alike(got, want, 1) {
			t.Errorf("%d bits: got %v, want %v", bits, got, want)
		}
	}
}

// bmpHeader is a BMP without pixels.
func bmpHeader(w, h int32, bits uint16, change func(b []byte)) []byte {
	b := make([]byte, 54)
	copy(b, "BM")
	binary.LittleEndian.PutUint32(b[10:], 54)
	binary.LittleEndian.PutUint32(b[14:], 40)
	binary.LittleEndian.PutUint32(b[18:], uint32(w))
	binary.LittleEndian.PutUint32(b[22:], uint32(h))
	binary.LittleEndian.PutUint16(b[26:], 1)
	binary.LittleEndian.PutUint16(b[28:], bits)
	if change != nil {
		change(b)
	}
	return b
}

func put32(at int, v uint32) func([]byte) {
	return func(b []byte) { binary.LittleEndian.PutUint32(b[at:], v) }
}

func TestDecodeRefusesOtherFormats(t *testing.T) {
	vp8 := func(w, h uint16, n uint32) []byte {
		b := binary.LittleEndian.AppendUint32([]byte("VP8 "), n)
		b = append(b, 0x30, 1, 0, 0x9d, 1, 0x2a)
		b = binary.LittleEndian.AppendUint16(b, w)
		return append(binary.LittleEndian.AppendUint16(b, h), make([]byte, 20)...)
	}
	vp8l := func(w, h uint32) []byte {
		return riffChunk("VP8L", append(binary.LittleEndian.AppendUint32([]byte{0x2f}, w-1|(h-1)<<14), make([]byte, 20)...))
	}
	type c struct {
		file []byte
		want error
		says string
	}
	le := binary.LittleEndian
	for name, c := range map[string]c{
		"BMP of negative width":       {bmpHeader(-8, 8, 24, nil), ErrDamaged, ""},
		"BMP of no width":             {bmpHeader(0, 8, 24, nil), ErrDamaged, ""},
		"BMP of the least height":     {bmpHeader(8, -1<<31, 24, nil), ErrTooLarge, "megapixels"},
		"BMP of the largest size":     {bmpHeader(1<<31-1, 1<<31-1, 24, nil), ErrDamaged, ""},
		"BMP of 50 MP upside down":    {bmpHeader(50_001, -1000, 8, nil), ErrDamaged, ""},
		"BMP with RLE":                {bmpHeader(8, 8, 8, put32(30, 1)), ErrDamaged, ""},
		"BMP of 16 bits":              {bmpHeader(8, 8, 16, nil), ErrDamaged, ""},
		"BMP of OS/2":                 {bmpHeader(8, 8, 24, put32(14, 12)), ErrDamaged, ""},
		"BMP cut off":                 {bmpHeader(8, 8, 24, nil)[:30], ErrDamaged, ""},
		"a text that begins with BM":  {[]byte("BM is a bus company in Bavaria, not a picture"), ErrNotPicture, ""},
		"TIFF of no size":             {rgbTIFF(le, 4, 4, long(256, 0)), ErrDamaged, ""},
		"TIFF of the largest size":    {rgbTIFF(le, 4, 4, long(256, 1<<31-1), long(257, 1<<31-1)), ErrDamaged, ""},
		"TIFF of an impossible size":  {rgbTIFF(le, 4, 4, long(256, 1<<32-1)), ErrTooLarge, "megapixels"},
		"TIFF of endless strips":      {rgbTIFF(le, 1, 4, long(257, 40_000_000), long(278, 1)), ErrTooLarge, "limit"},
		"TIFF of tiny tiles":          {rgbTIFF(le, 4000, 4, long(257, 9000), long(322, 1), long(323, 1)), ErrTooLarge, "limit"},
		"TIFF of huge tiles":          {rgbTIFF(le, 4, 4, long(322, 1<<30), long(323, 1<<30)), ErrDamaged, ""},
		"TIFF directory far away":     {[]byte("II*\x00\xff\xff\xff\xff................"), ErrDamaged, ""},
		"TIFF offsets far away":       {tiffFile(le, nil, long(256, 9), long(257, 9), short(262, 1), entry{tag: 273, kind: 4, numbers: nil}), ErrDamaged, ""},
		"BigTIFF":                     {[]byte("II\x2b\x00\x08\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00"), ErrUnsupported, "BigTIFF"},
		"CR2":                         {append([]byte("II*\x00\x10\x00\x00\x00CR\x02\x00"), make([]byte, 40)...), ErrUnsupported, "RAW"},
		"CR3":                         {[]byte("\x00\x00\x00\x18ftypcrx \x00\x00\x00\x01crx isom"), ErrUnsupported, "RAW"},
		"RAF":                         {[]byte("FUJIFILMCCD-RAW 0201FF389501"), ErrUnsupported, "RAW"},
		"ORF":                         {[]byte("IIRO\x08\x00\x00\x00"), ErrUnsupported, "RAW"},
		"RW2":                         {[]byte("IIU\x00\x18\x00\x00\x00"), ErrUnsupported, "RAW"},
		"HEIC":                        {[]byte("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"), ErrUnsupported, "HEIC"},
		"HEIC that says mif1 first":   {[]byte("\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic"), ErrUnsupported, "heif-convert"},
		"AVIF":                        {[]byte("\x00\x00\x00\x1cftypavif\x00\x00\x00\x00avifmif1miaf"), ErrUnsupported, "AVIF"},
		"HEIF of another codec":       {[]byte("\x00\x00\x00\x14ftypmif1\x00\x00\x00\x00mif1"), ErrUnsupported, "HEIF"},
		"a film":                      {[]byte("\x00\x00\x00\x14ftypisom\x00\x00\x00\x00mp42"), ErrUnsupported, "film"},
		"JPEG XL":                     {[]byte("\xff\x0a\xfa\x1f\x41"), ErrUnsupported, "JPEG XL"},
		"JPEG XL in boxes":            {[]byte("\x00\x00\x00\x0cJXL \r\n\x87\n"), ErrUnsupported, "JPEG XL"},
		"JPEG 2000":                   {[]byte("\x00\x00\x00\x0cjP  \r\n\x87\n"), ErrUnsupported, "JPEG 2000"},
		"Photoshop":                   {[]byte("8BPS\x00\x01"), ErrUnsupported, "Photoshop"},
		"animated WebP":               {riffFile(vp8x(1<<1, 4, 4), riffChunk("ANIM", make([]byte, 6))), ErrUnsupported, "animated"},
		"WebP of a huge canvas":       {riffFile(vp8x(0, 1<<24, 1<<24), vp8(16, 16, 30)), ErrDamaged, ""},
		"WebP of 16383×16383":         {riffFile(vp8(16383, 16383, 30)), ErrTooLarge, "megapixels"},
		"WebP of no width":            {riffFile(vp8(0, 16, 30)), ErrDamaged, ""},
		"lossless WebP of 16384²":     {riffFile(vp8l(16384, 16384)), ErrTooLarge, "megapixels"},
		"WebP with small canvas":      {riffFile(vp8x(1<<3, 4, 4), vp8l(16384, 16384)), ErrDamaged, ""},
		"WebP of a frame between":     {riffFile(append([]byte("VP8 \x1e\x00\x00\x00\x31\x01\x00"), make([]byte, 30)...)), ErrDamaged, ""},
		"WebP with endless metadata":  {riffFile(vp8x(0, 4, 4), []byte("ICCP\xff\xff\xff\xff")), ErrDamaged, ""},
		"WebP with a header too long": {riffFile(riffChunk("VP8X", make([]byte, 12))), ErrDamaged, ""},
		"WebP with two headers":       {riffFile(vp8x(0, 4, 4), vp8x(0, 4, 4), vp8(4, 4, 30)), ErrDamaged, ""},
		"WebP without a picture":      {riffFile(vp8x(0, 4, 4)), ErrDamaged, ""},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for kind, r := range map[string]io.Reader{"file": bytes.NewReader(c.file), "stream": iotest.OneByteReader(bytes.NewReader(c.file))} {
			_, err := Decode(r)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, %s: got error %v, want one line that is %v and says %q", name, kind, err, c.want, c.says)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%s: refusing it allocated %d MB, want at most 64", name, took>>20)
		}
	}
}

func TestUnsupportedErrorNamesAWayOut(t *testing.T) {
	_, err := Decode(strings.NewReader("\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic"))
	var u *UnsupportedError
	if !errors.As(err, &u) || u.Format != "HEIC" || !strings.Contains(u.Advice, "save it as JPEG") || errors.Is(err, ErrNotPicture) {
		t.Errorf("got error %v, want an UnsupportedError for HEIC that says what to do", err)
	}
}

// DecodeBytes is an estimate of memory that must not be too small, or two pictures at once take more than there is. All
// that decoding allocates is counted, most of which is garbage before the end.
func TestDecodeTakesNoMoreThanEstimated(t *testing.T) {
	if testing.Short() {
		t.Skip("decodes dozens of pictures")
	}
	if raceEnabled {
		t.Skip("the race detector multiplies what decoders allocate")
	}
	const w, h = 700, 500
	list := photos(w, h)
	files := map[string][]byte{
		"large lossy WebP": riffFile(vp8x(0, 40, 24), webps["lossy"][12:]),
		"RGB TIFF":         rgbTIFF(binary.BigEndian, w, h), "RGB TIFF of 5 MP": rgbTIFF(binary.LittleEndian, 2500, 2000),
	}
	for name, file := range webps {
		files[name+" WebP"] = file
	}
	for _, name := range []string{"NRGBA", "Gray16", "YCbCr444", "Gray", "NRGBA64", "RGBA64"}[:suitetest.Size(3, 6)] {
		files[name+" PNG"] = asPNG(t, list[name])
		files[name+" TIFF"] = encodedAs(t, "tiff", list[name])
		files[name+" deflated TIFF"] = encodedAs(t, "deflated tiff", list[name])
		files[name+" BMP"] = encodedAs(t, "bmp", list[name])
		files[name+" JPEG"] = asJPEG(t, list[name])
	}
	files["Paletted TIFF"] = encodedAs(t, "tiff", opaquePalette(list["Paletted"].(*image.Paletted)))
	for name, file := range files {
		for kind, r := range map[string]io.Reader{"file": bytes.NewReader(file), "stream": io.MultiReader(bytes.NewReader(file))} {
			header, err := Inspect(io.MultiReader(bytes.NewReader(file)))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if kind == "file" {
				if header, err = Inspect(bytes.NewReader(file)); err != nil {
					t.Fatal(err)
				}
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			img, err := Decode(r)
			runtime.ReadMemStats(&after)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			const fixed = 800 << 10 // buffers of a decoder, whatever the size
			if took := int64(after.TotalAlloc - before.TotalAlloc); took > 3*header.DecodeBytes+fixed {
				t.Errorf("%s, %s: decoding allocated %d bytes, want at most three times the estimate of %d", name, kind, took, header.DecodeBytes)
			}
			if size := int64(img.Bounds().Dx() * img.Bounds().Dy()); header.DecodeBytes > 60*size+fixed {
				t.Errorf("%s, %s: estimate of %d bytes for %d pixels, want at most 60 a pixel", name, kind, header.DecodeBytes, size)
			}
			runtime.KeepAlive(img)
		}
	}
}

// A broken connection is not a damaged picture, wherever it breaks.
func TestFormatsPassOnFailuresOfTheReader(t *testing.T) {
	broken := errors.New("the cable was cut")
	img := photos(300, 200)["Gray"]
	turned := extended(webps["lossy"], 1<<3, nil, riffChunk("EXIF", tiff(6)))
	for name, file := range map[string][]byte{"bmp": encodedAs(t, "bmp", img), "tiff": rgbTIFF(binary.BigEndian, 300, 200), "webp": webps["lossy"], "webp with EXIF": turned} {
		for _, n := range []int{0, 5, 20, len(file) / 2, len(file) - 3} {
			_, err := Decode(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
				t.Errorf("%s after %d bytes: got error %v, want %v", name, n, err, broken)
			}
		}
		for _, n := range []int{20, len(file) / 2} {
			if _, err := Decode(bytes.NewReader(file[:n])); !errors.Is(err, ErrDamaged) {
				t.Errorf("%s cut off after %d bytes: got error %v, want ErrDamaged", name, n, err)
			}
		}
	}
}
