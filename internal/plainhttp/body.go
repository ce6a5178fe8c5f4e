package plainhttp

import (
	"io"
	"net/http"
)

// body reads a request body, part of which may have been read with the head.
type body struct {
	conn   *conn
	left   int64
	timed  bool  // its deadline is set
	closed bool  // by the handler
	err    error // read error, if any
}

// begin returns the body of a request whose head has been read.
func (b *body) begin(length int64) io.ReadCloser {
	*b = body{conn: b.conn, left: length}
	if length == 0 {
		return http.NoBody
	}
	return b
}

// Close makes reads fail. The rest is drained before the response is sent.
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

// read is Read without the check for Close. As in net/http, a read error ends the request's
// context: the client has left or is too slow.
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
		c.flushComplete() // the client may wait for earlier responses
		if !b.timed {
			b.timed = true
			c.readWithin(c.server.bodyTimeout)
		}
		var err error
		if n, err = c.raw.Read(p); n == 0 && err != nil {
			b.err = err
			if err == io.EOF { //nolint:errorlint // connections return it unwrapped
				b.err = io.ErrUnexpectedEOF
			}
			c.cancel()
			return 0, b.err
		}
	}
	b.left -= int64(n)
	return n, nil
}

// drain reads the rest of the body, for clients that send the whole request before they read the
// response. It reports whether it reached the end.
func (b *body) drain() bool {
	c := b.conn
	n := min(b.left, int64(c.w-c.r))
	c.r += int(n)
	b.left -= n
	for b.left > 0 { // c.in is empty now and can be overwritten
		if _, err := b.read(c.in); err != nil {
			return false
		}
	}
	return true
}
