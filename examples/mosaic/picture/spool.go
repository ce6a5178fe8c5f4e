package picture

import (
	"errors"
	"fmt"
	"io"
)

// maxSpool is how much of a stream is kept for random access.
const maxSpool = 400_000_000

// errBehindSpool is the fault of the file, which points there, and not of the stream.
var errBehindSpool = fmt.Errorf("it points more than %d MB into the file", maxSpool/1_000_000)

// spoolChunk is the unit in which a spool grows, so that growing copies nothing.
const spoolChunk = 1 << 18

// spool gives random access to a stream: it keeps the bytes up to the furthest that was asked for. TIFF
// needs it, because its directory may lie behind the pixels.
type spool struct {
	r      io.Reader
	chunks [][]byte // all of spoolChunk bytes but the last
	size   int64
	err    error // of r
}

// ReadAt reads as io.ReaderAt says.
func (s *spool) ReadAt(p []byte, off int64) (int, error) {
	end := off + int64(len(p))
	if off < 0 || end < off || end > maxSpool {
		return 0, errBehindSpool
	}
	s.fill(end)
	n := 0
	for n < len(p) && off < s.size {
		c := s.chunks[off/spoolChunk]
		k := copy(p[n:], c[off%spoolChunk:])
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, s.err
	}
	return n, nil
}

// fill reads until the spool has end bytes or r ends.
func (s *spool) fill(end int64) {
	for s.size < end && s.err == nil {
		if s.size%spoolChunk == 0 {
			s.chunks = append(s.chunks, make([]byte, 0, spoolChunk))
		}
		last := &s.chunks[len(s.chunks)-1]
		n, err := s.r.Read((*last)[len(*last):cap(*last)])
		*last = (*last)[:len(*last)+n]
		s.size += int64(n)
		s.err = err
	}
}

// directly returns random access to what r has yet to give, without keeping anything, or nil if r has none.
func directly(r io.Reader) io.ReaderAt {
	at, ok := r.(interface {
		io.ReaderAt
		io.Seeker
	})
	if !ok {
		return nil
	}
	// This only asks for the position. A pipe refuses.
	here, err := at.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil
	}
	return io.NewSectionReader(at, here, 1<<62-here)
}

// watched records the error of random access below the decoders, as source does for streams.
type watched struct {
	r   io.ReaderAt
	src *source
}

func (f watched) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.r.ReadAt(p, off)
	if err != nil && err != io.EOF && !errors.Is(err, errBehindSpool) {
		f.src.err = err
	}
	return n, err
}

// Read makes watched an io.Reader, which the signature of the TIFF decoder asks for and its code does not use.
func (f watched) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
