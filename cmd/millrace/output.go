package main

import (
	"errors"
	"io"
	"syscall"
)

// documents is where texts for users send them: not everybody has the repository.
const documents = "https://github.com/millrace/millrace/blob/main/docs/"

// output is the standard output. It marks its errors, to distinguish them from network errors.
type output struct{ to io.Writer }

// Write implements io.Writer.
func (o output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		err = &outputError{err}
	}
	return n, err
}

// outputError means that the output could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string { return "cannot write the output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// closedPipe reports whether the reader of the output has closed the pipe. On Unix the signal
// usually ends the process first.
func closedPipe(err error) bool {
	failed := (*outputError)(nil)
	return errors.As(err, &failed) && (errors.Is(failed.err, syscall.EPIPE) || errors.Is(failed.err, io.ErrClosedPipe))
}
