package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/millrace/millrace/queue"
)

// lines yields the lines of r without their line ends. An error, or the end of the context, is
// yielded last.
//
// A read from a terminal or a pipe cannot be interrupted. If the context ends during one, the
// reading goroutine is abandoned; the program is about to exit.
func lines(ctx context.Context, r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		type read struct {
			line string
			err  error
		}
		reads, enough := make(chan read), make(chan struct{})
		defer close(enough)
		go func() {
			defer close(reads)
			for b := bufio.NewReader(r); ; {
				line, err := readLine(b)
				if errors.Is(err, io.EOF) {
					return
				}
				select {
				case reads <- read{line, err}:
				case <-enough:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for {
			select {
			case next, ok := <-reads:
				if !ok || !yield(next.line, next.err) || next.err != nil {
					return
				}
			case <-ctx.Done():
				yield("", context.Cause(ctx))
				return
			}
		}
	}
}

// errLongLine means that a line is longer than a message.
var errLongLine = fmt.Errorf("longer than %d bytes, the largest message", queue.MaxText)

// readLine returns a line without its end, or io.EOF if there is none.
func readLine(b *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > queue.MaxText+len("\r\n"):
			return "", errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return "", err
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
	}
}
