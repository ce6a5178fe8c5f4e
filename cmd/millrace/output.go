package main

import (
	"errors"
	"io"
	"syscall"
)

// output is the standard output, whose errors can be told from those of a network.
type output struct{ to io.Writer }

// Write implements io.Writer.
func (o output) Write(p []byte) (int, error) {
	n, err := o.to.Write(p)
	if err != nil {
		err = &outputError{err}
	}
	return n, err
}

// outputError means that what was found out could not be written.
type outputError struct{ err error }

func (e *outputError) Error() string { return "cannot write the output: " + e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// closedPipe reports whether an error says that nobody reads the output any more. On Unix
// that mostly ends the process before anybody can ask.
func closedPipe(err error) bool {
	failed := (*outputError)(nil)
	return errors.As(err, &failed) && (errors.Is(failed.err, syscall.EPIPE) || errors.Is(failed.err, io.ErrClosedPipe))
}
