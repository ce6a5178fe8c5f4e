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

// lines yields the lines of r without their ends, until its end, an error, or the end of
// the context, which are yielded last.
//
// Nothing can interrupt a read from a terminal or a pipe. When the context ends during one,
// the goroutine that reads is left behind; this program is about to end then.
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

// errLongLine means a line that is no message, whatever becomes of it.
var errLongLine = fmt.Errorf("it has more than %d bytes, which is as much as a message can have", queue.MaxText)

// readLine returns a line without its end, or io.EOF when there is none.
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
