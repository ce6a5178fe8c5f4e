package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"

	"github.com/bep/imagemeta"
)

// exifOrientation returns the orientation in an EXIF block (a small TIFF file). For a broken block it
// returns upright, because a photograph must not be refused for its metadata.
func exifOrientation(tiff []byte) (o orientation) {
	o = upright
	tiff = bytes.TrimPrefix(tiff, exifPrefix) // which some programs write outside JPEG, too
	// imagemeta parses untrusted bytes. If it panics on some, the photograph is still usable.
	defer func() {
		if recover() != nil {
			o = upright
		}
	}()
	_, _ = imagemeta.Decode(imagemeta.Options{
		R:           bytes.NewReader(wrapPNG(tiff)),
		ImageFormat: imagemeta.PNG,
		Sources:     imagemeta.EXIF,
		ShouldHandleTag: func(t imagemeta.TagInfo) bool {
			// IFD1 describes the thumbnail, which has an orientation of its own.
			return t.Tag == "Orientation" && t.Namespace == "IFD0"
		},
		HandleTag: func(t imagemeta.TagInfo) error {
			var v int
			switch n := t.Value.(type) {
			case uint16:
				v = int(n)
			case uint32: // some writers use LONG for every number
				v = int(n)
			case uint8:
				v = int(n)
			}
			if v >= 1 && v <= 8 {
				o = orientation(v)
			}
			return imagemeta.ErrStopWalking
		},
		Warnf: func(string, ...any) {},
	})
	return o
}

// wrapPNG puts an EXIF block into a PNG without pixels, the simplest file that
// imagemeta reads. JPEG and PNG blocks then take the same path.
func wrapPNG(tiff []byte) []byte {
	b := make([]byte, 0, len(pngSignature)+12+len(tiff))
	b = append(b, pngSignature...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(tiff)))
	b = append(b, "eXIf"...)
	b = append(b, tiff...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[len(pngSignature)+4:]))
}

// maxEXIF is the largest EXIF block that is read after the pixels of a PNG or WebP.
const maxEXIF = 1 << 20

// exifWatcher looks for an EXIF block in the bytes of a PNG or WebP while the decoder reads them. The block may
// come after the pixels, which the scan of the header does not reach.
type exifWatcher struct {
	r       io.Reader
	chunk   func(head []byte) (length int64, exif bool) // the bytes that follow, and whether they are the block
	head    []byte                                      // of the chunk being read, up to 8 bytes
	skip    int64                                       // bytes until the next chunk header
	keeping bool
	exif    []byte
}

func newPNGWatcher(r io.Reader) *exifWatcher {
	return &exifWatcher{r: r, skip: int64(len(pngSignature)), chunk: func(head []byte) (int64, bool) {
		return int64(binary.BigEndian.Uint32(head)) + 4, string(head[4:]) == "eXIf" // and the checksum
	}}
}

// newWebPWatcher takes a reader of which the first skip bytes are not chunks.
func newWebPWatcher(r io.Reader, skip int64) *exifWatcher {
	return &exifWatcher{r: r, skip: skip, chunk: func(head []byte) (int64, bool) {
		n := int64(binary.LittleEndian.Uint32(head[4:]))
		return n + n&1, string(head[:4]) == "EXIF"
	}}
}

func (w *exifWatcher) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	w.watch(p[:n])
	return n, err
}

func (w *exifWatcher) watch(p []byte) {
	for len(p) > 0 {
		if w.skip > 0 {
			n := min(w.skip, int64(len(p)))
			if w.keeping {
				w.exif = append(w.exif, p[:n]...)
			}
			w.skip -= n
			p = p[n:]
			continue
		}
		n := min(8-len(w.head), len(p))
		w.head = append(w.head, p[:n]...)
		p = p[n:]
		if len(w.head) == 8 {
			var exif bool
			w.skip, exif = w.chunk(w.head)
			w.keeping = exif && w.exif == nil && w.skip <= maxEXIF
			w.head = w.head[:0]
		}
	}
}

// orientation is valid once the whole file was read, or as much of it as matters. Without a block it is otherwise.
func (w *exifWatcher) orientation(otherwise orientation) orientation {
	if len(w.exif) == 0 {
		return otherwise
	}
	return exifOrientation(w.exif)
}
