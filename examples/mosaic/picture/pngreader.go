package picture

import (
	"encoding/binary"
	"errors"
	"fmt"
	sums "hash"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
)

// errNotSlice means that a PNG was not written by a [Writer], so that its rows cannot be moved into another.
var errNotSlice = errors.New("it is not a slice of a mosaic")

// sliceReader reads a slice that a [Writer] wrote: its compressed rows as they are, or row by row.
type sliceReader struct {
	r             io.Reader
	width, height int

	left int         // bytes of the chunk that were not read
	sum  sums.Hash32 // of the chunk
	end  bool        // the rows have ended
}

func newSliceReader(r io.Reader) (*sliceReader, error) {
	s := &sliceReader{r: r, sum: crc32.NewIEEE()}
	signature := make([]byte, len(pngSignature))
	if _, err := io.ReadFull(r, signature); err != nil {
		return nil, cutShort(err)
	}
	if string(signature) != pngSignature {
		return nil, errNotSlice
	}
	header, err := s.small("IHDR", 13)
	if err != nil {
		return nil, err
	}
	width, height := binary.BigEndian.Uint32(header), binary.BigEndian.Uint32(header[4:])
	if width < 1 || height < 1 || width > MaxOutputSide || height > MaxOutputSide || string(header[8:]) != "\x08\x02\x00\x00\x00" {
		return nil, errNotSlice
	}
	s.width, s.height = int(width), int(height)
	if _, err := s.small(sliceChunk, 0); err != nil {
		return nil, err
	}
	if err := s.chunk("IDAT"); err != nil {
		return nil, err
	}
	var zlib [2]byte
	if _, err := io.ReadFull(s, zlib[:]); err != nil {
		return nil, err
	}
	if string(zlib[:]) != zlibHeader {
		return nil, errNotSlice
	}
	return s, nil
}

// small reads a whole chunk of a known size.
func (s *sliceReader) small(name string, size int) ([]byte, error) {
	if err := s.chunk(name); err != nil {
		return nil, err
	}
	if s.left != size {
		return nil, errNotSlice
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(s.r, data); err != nil {
		return nil, cutShort(err)
	}
	_, _ = s.sum.Write(data) // never fails
	return data, s.endChunk()
}

// chunk begins the next chunk, which must have this name.
func (s *sliceReader) chunk(name string) error {
	var head [8]byte
	if _, err := io.ReadFull(s.r, head[:]); err != nil {
		return cutShort(err)
	}
	if string(head[4:]) == "IEND" && name == "IDAT" {
		s.end = true
		return io.EOF
	}
	length := binary.BigEndian.Uint32(head[:4])
	if string(head[4:]) != name || length > 1<<31-1 {
		return errNotSlice
	}
	s.left = int(length)
	s.sum.Reset()
	_, _ = s.sum.Write(head[4:]) // never fails
	return nil
}

// endChunk checks the sum of a chunk that was read.
func (s *sliceReader) endChunk() error {
	var sum [4]byte
	if _, err := io.ReadFull(s.r, sum[:]); err != nil {
		return cutShort(err)
	}
	if binary.BigEndian.Uint32(sum[:]) != s.sum.Sum32() {
		return fmt.Errorf("%w: a checksum is wrong", ErrDamaged)
	}
	return nil
}

// Read reads the compressed rows.
func (s *sliceReader) Read(b []byte) (int, error) {
	for s.left == 0 {
		if s.end {
			return 0, io.EOF
		}
		if err := s.endChunk(); err != nil {
			return 0, err
		}
		if err := s.chunk("IDAT"); err != nil {
			return 0, err
		}
	}
	n, err := s.r.Read(b[:min(len(b), s.left)])
	_, _ = s.sum.Write(b[:n]) // never fails
	s.left -= n
	switch {
	case !errors.Is(err, io.EOF):
		return n, err
	case s.left > 0:
		return n, cutShort(io.EOF)
	}
	return n, nil // the end of the chunk
}

func cutShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrDamaged)
	}
	return err
}

// tail is how a slice's compressed rows end: flushed, with the last block, and with their checksum.
const tail = len(flushed) + len(lastBlock) + 4

// copyRows copies the compressed rows, without the last block, and returns their checksum.
func (s *sliceReader) copyRows(put func([]byte)) (sum uint32, err error) {
	buffer := make([]byte, 0, idatBytes+tail)
	for err == nil {
		var n int
		n, err = io.ReadFull(s, buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if keep := len(buffer) - tail; keep > 0 {
			put(buffer[:keep])
			buffer = buffer[:copy(buffer, buffer[keep:])]
		}
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, err
	}
	if len(buffer) < tail || string(buffer[:tail-4]) != flushed+lastBlock {
		return 0, errNotSlice
	}
	put(buffer[:len(flushed)])
	return binary.BigEndian.Uint32(buffer[tail-4:]), nil
}

// rows returns the rows as red, green and blue: each call of next returns one, valid until the next call.
func (s *sliceReader) rows() (next func() ([]byte, error)) {
	inflate := flate.NewReader(s)
	line, row := make([]byte, 1+3*s.width), make([]byte, 3*s.width)
	return func() ([]byte, error) {
		if _, err := io.ReadFull(inflate, line); err != nil {
			var corrupt flate.CorruptInputError
			if errors.As(err, &corrupt) {
				return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
			}
			return nil, cutShort(err)
		}
		switch in := line[1:]; line[0] {
		case filterSub:
			copy(row, in[:3])
			for i := 3; i < len(row); i++ {
				row[i] = in[i] + row[i-3]
			}
		case filterUp:
			in = in[:len(row)]
			for i := range row {
				row[i] += in[i]
			}
		default:
			return nil, fmt.Errorf("%w: row filter %d", ErrDamaged, line[0])
		}
		return row, nil
	}
}
