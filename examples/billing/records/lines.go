package records

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

// maxLine bounds a line in bytes, its end included.
const maxLine = 64 << 10

// lines reads the lines of a text in constant memory.
type lines struct {
	r      *bufio.Reader
	number int // of the line that was read last
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, maxLine)} }

// next returns the next line that is not empty, without its end. It is valid until the next call. If the line is not one to use, reason
// says why. The error is io.EOF after the last line.
func (l *lines) next() (line []byte, reason string, err error) {
	for {
		line, size, err := l.read()
		if err != nil {
			return nil, "", err
		}
		l.number++
		if size > maxLine {
			return nil, fmt.Sprintf("the line has %d bytes, at most %d are read", size, maxLine), nil
		}
		line = bytes.TrimSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\r"))
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if len(line) > 0 {
			return line, unusable(line), nil
		}
	}
}

// read returns a line with its end, and its size. Of a line with more than maxLine bytes only the size counts.
func (l *lines) read() (line []byte, size int, err error) {
	for {
		line, err = l.r.ReadSlice('\n')
		size += len(line)
		switch {
		case err == nil:
			return line, size, nil
		case errors.Is(err, bufio.ErrBufferFull):
			// The rest of the line follows.
		case errors.Is(err, io.EOF) && size > 0: // the last line, without an end
			return line, size, nil
		default:
			return nil, 0, err
		}
	}
}

// unusable says why a line cannot be read as text, or nothing.
func unusable(line []byte) string {
	ascii := true
	for i, b := range line {
		switch {
		case b == 0:
			return fmt.Sprintf("byte %d is NUL", i+1)
		case b < ' ' || b == 0x7f:
			return fmt.Sprintf("byte %d is a control character, 0x%02x", i+1, b)
		case b >= utf8.RuneSelf:
			ascii = false
		}
	}
	if ascii || utf8.Valid(line) {
		return ""
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(line[i:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("byte %d, 0x%02x, is not UTF-8", i+1, line[i])
		}
		i += size
	}
}
