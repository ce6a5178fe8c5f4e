package plainhttp

import (
	"io"
	"net/http"
)

// body reads the body of a request, of which a part may have been read with the head.
type body struct {
	conn   *conn
	left   int64
	timed  bool  // the time for it has begun
	closed bool  // by the handler
	err    error // why no more can be read, while something is left
}

// begin returns the body of a request whose head has been read.
func (b *body) begin(length int64) io.ReadCloser {
	*b = body{conn: b.conn, left: length}
	if length == 0 {
		return http.NoBody
	}
	return b
}

// Close makes reading fail. What is left is read before the answer is sent.
func (b *body) Close() error {
	b.closed = true
	return nil
}

func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.read(p)
}

// read is Read, closed or not. What cannot be read ends the context of the request, as
// in net/http: its client has left, or takes too long.
func (b *body) read(p []byte) (int, error) {
	c := b.conn
	switch {
	case b.left == 0:
		return 0, io.EOF
	case b.err != nil:
		return 0, b.err
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	if n == 0 {
		c.flushComplete() // the client may wait for that before it goes on
		if !b.timed {
			b.timed = true
			c.readWithin(c.server.bodyTimeout)
		}
		var err error
		if n, err = c.raw.Read(p); n == 0 && err != nil {
			b.err = err
			if err == io.EOF { //nolint:errorlint // that is what a connection returns
				b.err = io.ErrUnexpectedEOF
			}
			c.cancel()
			return 0, b.err
		}
	}
	b.left -= int64(n)
	return n, nil
}

// drain reads what the handler has left, for clients that send all of a request before
// they read anything of its answer. It returns whether the end was reached.
func (b *body) drain() bool {
	c := b.conn
	n := min(b.left, int64(c.w-c.r))
	c.r += int(n)
	b.left -= n
	for b.left > 0 { // so that all that was read is used, and in is free
		if _, err := b.read(c.in); err != nil {
			return false
		}
	}
	return true
}
