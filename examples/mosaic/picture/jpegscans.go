package picture

import (
	"errors"
	"io"
)

// maxScans is how many scans of a JPEG are decoded behind the first. Real progressive files have some 10. Every scan goes through the
// whole picture, and a few bytes are enough for one: without a limit a small file could keep a processor busy for hours.
func maxScans(width, height int) int {
	const (
		least  = 100
		pixels = 5_000_000_000 // of all scans together, beyond that
	)
	return least + pixels/(width*height)
}

var errManyScans = errors.New("it has too many scans: save it as a baseline JPEG")

// scanLimit reads what follows the header of a JPEG, and fails behind too many scans. The compressed data of a scan never looks like the
// beginning of another.
type scanLimit struct {
	r    io.Reader
	left int
	last byte
}

func (s *scanLimit) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for _, b := range p[:n] {
		if s.last == 0xff && b == markerSOS {
			s.left--
		}
		s.last = b
	}
	if s.left < 0 {
		return 0, errManyScans
	}
	return n, err
}
