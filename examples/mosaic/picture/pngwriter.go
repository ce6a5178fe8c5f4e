package picture

import (
	"bytes"
	"encoding/binary"
	sums "hash"
	"hash/adler32"
	"hash/crc32"
	"image"
	"io"

	"github.com/klauspost/compress/flate"
)

// PNG is written here rather than by image/png for the sake of slices. The compressed rows of a slice begin with a row that does
// not depend on the one above, and end on a byte, before an empty last block. So [Compose] puts the rows of slices
// one after the other without compressing them again.

const (
	// sliceChunk marks a PNG as written here: ancillary, private, and not to be copied by programs that change the rows.
	sliceChunk = "mrSL"

	// zlibHeader is that of a stream with a window of 32 KiB.
	zlibHeader = "\x78\x01"

	// flushed is how a flushed part of a stream ends, and lastBlock is the empty block after the last.
	flushed   = "\x00\x00\xff\xff"
	lastBlock = "\x03\x00"
)

// The row filters in use (PNG specification, section 9.2).
const (
	filterSub = 1
	filterUp  = 2
)

// idatBytes is about how much compressed data a chunk has.
const idatBytes = 1 << 16

// pngWriter writes a PNG of 8-bit red, green and blue.
type pngWriter struct {
	chunks   chunkWriter
	size     image.Point
	pending  bytes.Buffer // compressed
	compress *flate.Writer
	sum      sums.Hash32
	above    []byte    // the row before, red, green and blue
	row      []byte    // the row
	filtered [2][]byte // the row by filter, each with the number of its filter first
	begun    bool
}

func newPNGWriter(w io.Writer, size image.Point) *pngWriter {
	p := &pngWriter{chunks: chunkWriter{w: w}, size: size, sum: adler32.New(), above: make([]byte, 3*size.X), row: make([]byte, 3*size.X)}
	for i, filter := range [...]byte{filterSub, filterUp} {
		p.filtered[i] = make([]byte, 1+3*size.X)
		p.filtered[i][0] = filter
	}
	p.compress, _ = flate.NewWriter(&p.pending, flate.BestSpeed) // fails only for an unknown level
	return p
}

func (p *pngWriter) write(rows *image.RGBA) error {
	for y := rows.Rect.Min.Y; y < rows.Rect.Max.Y; y++ {
		src := rows.Pix[rows.PixOffset(rows.Rect.Min.X, y):][:4*p.size.X]
		dst := p.row
		for len(src) >= 4 && len(dst) >= 3 {
			dst[0], dst[1], dst[2] = src[0], src[1], src[2]
			src, dst = src[4:], dst[3:]
		}
		first := !p.begun
		if first {
			p.begin()
		}
		line := p.filter(first)
		_, _ = p.sum.Write(line)                          // never fails
		if _, err := p.compress.Write(line); err != nil { // the buffer never fails
			return err
		}
		if p.pending.Len() >= idatBytes {
			p.flush()
		}
		p.above, p.row = p.row, p.above
	}
	return p.chunks.err
}

func (p *pngWriter) begin() {
	p.begun = true
	p.chunks.begin(p.size)
	p.chunks.chunk(sliceChunk, nil)
	p.pending.WriteString(zlibHeader)
}

// filter chooses the filter whose differences are smaller, as the PNG specification recommends.
func (p *pngWriter) filter(first bool) []byte {
	sub, up := p.filtered[0], p.filtered[1]
	row, above := p.row, p.above[:len(p.row)]
	var bySub, byUp int
	copy(sub[1:], row[:3])
	differ(sub[4:], row[3:], row)
	for _, v := range sub[1:] {
		bySub += int(magnitude[v])
	}
	if first {
		return sub
	}
	differ(up[1:], row, above)
	for _, v := range up[1:] {
		byUp += int(magnitude[v])
	}
	if byUp < bySub {
		return up
	}
	return sub
}

// differ sets dst to a-b.
func differ(dst, a, b []byte) {
	a, b = a[:len(dst)], b[:len(dst)]
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

// magnitude is the absolute value of a difference modulo 256.
var magnitude = func() (t [256]uint8) {
	for i := range t {
		t[i] = uint8(min(i, 256-i)) //nolint:gosec // at most 128
	}
	return t
}()

func (p *pngWriter) flush() {
	p.chunks.chunk("IDAT", p.pending.Bytes())
	p.pending.Reset()
}

func (p *pngWriter) close() error {
	if err := p.compress.Flush(); err != nil {
		return err
	}
	p.pending.WriteString(lastBlock)
	p.pending.Write(binary.BigEndian.AppendUint32(nil, p.sum.Sum32()))
	p.flush()
	p.chunks.chunk("IEND", nil)
	return p.chunks.err
}

// chunkWriter writes chunks and keeps the first error.
type chunkWriter struct {
	w   io.Writer
	err error
}

// begin writes the signature and the header of a picture with 8 bits of red, green and blue.
func (c *chunkWriter) begin(size image.Point) {
	c.write([]byte(pngSignature))
	c.chunk("IHDR", trueColourHeader(size))
}

func trueColourHeader(size image.Point) []byte {
	h := binary.BigEndian.AppendUint32(nil, uint32(size.X)) //nolint:gosec // at most MaxOutputSide
	h = binary.BigEndian.AppendUint32(h, uint32(size.Y))    //nolint:gosec // at most MaxOutputSide
	return append(h, 8, 2, 0, 0, 0)
}

func (c *chunkWriter) chunk(name string, data []byte) {
	head := append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), name...) //nolint:gosec // far below the limit
	sum := crc32.Update(crc32.ChecksumIEEE(head[4:]), crc32.IEEETable, data)
	c.write(head)
	c.write(data)
	c.write(binary.BigEndian.AppendUint32(nil, sum))
}

func (c *chunkWriter) write(b []byte) {
	if c.err == nil && len(b) > 0 {
		_, c.err = c.w.Write(b)
	}
}
