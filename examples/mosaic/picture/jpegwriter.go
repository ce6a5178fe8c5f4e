package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/jpeg"
	"io"
	"runtime"
	"sync"
)

// image/jpeg wants the whole picture, or asks for it pixel by pixel. So every row of blocks is encoded as a picture of its own,
// several at a time, and their data is joined. Restart markers (ITU-T T.81, E.1.4) make that valid: after one, no
// block depends on the one before.

// mcu is the side of a block of 4:2:0, in pixels.
const mcu = 16

// maxBands is how many bytes of pixels are encoded together, so that a machine with many processors does not take gigabytes for
// a wide picture.
const maxBands = 128 << 20

// jpegWriter writes a JPEG.
type jpegWriter struct {
	w     io.Writer
	size  image.Point
	bands []*band // encoded together
	full  int     // how many of them have all their rows
	done  int     // bands written
	err   error
}

// band is a row of blocks.
type band struct {
	pixels *image.RGBA
	rows   int // of pixels that it has
	data   bytes.Buffer
	err    error
}

func newJPEGWriter(w io.Writer, size image.Point) *jpegWriter {
	j := &jpegWriter{w: w, size: size, bands: make([]*band, bandsOf(size, runtime.GOMAXPROCS(0)))}
	for i := range j.bands {
		j.bands[i] = &band{pixels: image.NewRGBA(image.Rect(0, 0, size.X, mcu))}
	}
	return j
}

// bandsOf is how many bands are encoded together.
func bandsOf(size image.Point, processors int) int {
	return min(4*processors, (size.Y+mcu-1)/mcu, max(maxBands/(4*mcu*size.X), 1))
}

func (j *jpegWriter) write(rows *image.RGBA) error {
	for y := rows.Rect.Min.Y; y < rows.Rect.Max.Y; y++ {
		b := j.bands[j.full]
		copy(b.pixels.Pix[b.rows*b.pixels.Stride:][:b.pixels.Stride], rows.Pix[rows.PixOffset(rows.Rect.Min.X, y):])
		if b.rows++; b.rows < mcu {
			continue
		}
		if j.full++; j.full == len(j.bands) {
			j.encode()
		}
	}
	return j.err
}

// encode encodes and writes the bands that have rows.
func (j *jpegWriter) encode() {
	var all sync.WaitGroup
	for _, b := range j.bands {
		if b.rows > 0 {
			all.Go(b.encode)
		}
	}
	all.Wait()
	for _, b := range j.bands {
		if b.rows > 0 && j.err == nil {
			j.err = j.put(b)
		}
		b.rows = 0
	}
	j.full = 0
}

func (b *band) encode() {
	b.data.Reset()
	part := *b.pixels
	part.Rect.Max.Y = b.rows
	b.err = jpeg.Encode(&b.data, &part, &jpeg.Options{Quality: jpegQuality})
}

// put writes a band: the first with its header, which is then that of the whole, the others after a restart marker.
func (j *jpegWriter) put(b *band) error {
	if b.err != nil {
		return b.err
	}
	header, data, err := splitJPEG(b.data.Bytes(), j.size)
	if err != nil {
		return err
	}
	if j.done > 0 {
		header = []byte{0xff, 0xd0 + byte((j.done-1)%8)}
	}
	j.done++
	if _, err := j.w.Write(header); err != nil {
		return err
	}
	_, err = j.w.Write(data)
	return err
}

// errNotOurs means that image/jpeg has changed what it writes.
var errNotOurs = errors.New("the encoder wrote an unknown kind of JPEG")

// splitJPEG divides a JPEG that image/jpeg wrote into its header, changed to that of a picture of the given size with a restart after
// each row of blocks, and the data of its blocks. It changes file.
func splitJPEG(file []byte, size image.Point) (header, data []byte, err error) {
	const sof0, sos, eoi = 0xc0, 0xda, "\xff\xd9"
	if !bytes.HasPrefix(file, []byte("\xff\xd8")) || !bytes.HasSuffix(file, []byte(eoi)) {
		return nil, nil, errNotOurs
	}
	for at := 2; at+9 < len(file) && file[at] == 0xff; {
		length := int(binary.BigEndian.Uint16(file[at+2:]))
		switch file[at+1] {
		case sof0:
			binary.BigEndian.PutUint16(file[at+5:], uint16(size.Y)) //nolint:gosec // checked by NewWriter
		case sos:
			end := at + 2 + length
			if end > len(file)-len(eoi) {
				return nil, nil, errNotOurs
			}
			restart := binary.BigEndian.AppendUint16([]byte("\xff\xdd\x00\x04"), uint16((size.X+mcu-1)/mcu)) //nolint:gosec // at most 4,096
			header = append(append(header, file[:at]...), restart...)
			return append(header, file[at:end]...), file[end : len(file)-len(eoi)], nil
		}
		at += 2 + length
	}
	return nil, nil, errNotOurs
}

func (j *jpegWriter) close() error {
	j.encode()
	if j.err == nil {
		_, j.err = io.WriteString(j.w, "\xff\xd9")
	}
	return j.err
}
