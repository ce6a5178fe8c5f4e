package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// conn is a connection. One request uses it at a time.
type conn struct {
	raw       net.Conn    // the TCP connection
	stream    net.Conn    // raw, or TLS over it
	records   *recordConn // tracks the TLS records on raw; nil without TLS
	peeker    *peeker     // reads raw without waiting
	idleSince time.Time

	in   []byte // read buffer; in[r:w] is unread
	r, w int
}

func newConn(raw net.Conn) *conn {
	return &conn{raw: raw, stream: raw, peeker: newPeeker(raw), in: make([]byte, 4<<10)}
}

// startTLS puts TLS between the socket and the stream, and returns it for the handshake.
func (c *conn) startTLS(config *tls.Config) *tls.Conn {
	c.records = &recordConn{Conn: c.raw, peeker: c.peeker}
	over := tls.Client(c.records, config)
	c.stream = over
	return over
}

// maxIdleUnchecked is how long a connection may be idle and still be reused if its socket cannot
// be peeked at. No server has a shorter idle timeout.
const maxIdleUnchecked = time.Second

// isReusable reports whether an idle connection can be reused: the server has neither closed it
// nor sent unsolicited data, which would be taken for the next response. Data that TLS has
// buffered counts, and so does a partial record.
func (c *conn) isReusable() bool {
	if c.peeker.socket == nil && time.Since(c.idleSince) >= maxIdleUnchecked {
		return false
	}
	var n int
	var err error
	if c.records == nil {
		n, err = c.peeker.Read(c.in[:1]) // c.in is empty between requests
	} else {
		// TLS handles its own messages, such as session tickets. It keeps a partial
		// record if its read times out.
		c.records.peek = true
		n, err = c.stream.Read(c.in[:1])
		c.records.peek = false
	}
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && (c.records == nil || c.records.atRecordBoundary())
}

// abort makes reads and writes fail. It may be called at any time. A connection that refuses a
// deadline is already closed.
func (c *conn) abort() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// close closes the socket without a TLS close_notify: no request is in progress, or its response
// is lost anyway.
func (c *conn) close() { _ = c.raw.Close() }

// roundTrip sends a request, reads its response and reports whether the connection can be reused.
func (c *conn) roundTrip(request []byte) (resp *http.Response, reusable bool, err error) {
	if _, err := c.stream.Write(request); err != nil {
		return c.readRefusal(err)
	}
	resp, reusable, err = c.readResponse()
	if errors.Is(err, io.EOF) {
		err = errClosedEarly
	}
	return resp, reusable && c.r == c.w, err
}

// readRefusal reads the response of a server that stopped reading the request, which explains
// more than the write error. Only an error status is accepted.
func (c *conn) readRefusal(broken error) (resp *http.Response, reusable bool, err error) {
	resp, _, err = c.readResponse()
	if err != nil {
		return nil, false, broken
	}
	if resp.StatusCode < http.StatusBadRequest {
		_ = resp.Body.Close() // returns its buffer
		return nil, false, broken
	}
	return resp, false, nil
}

// fill reads at least one byte into the buffer.
func (c *conn) fill() error {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w < len(c.in):
	case c.r > 0:
		c.w = copy(c.in, c.in[c.r:c.w])
		c.r = 0
	default:
		c.in = append(c.in, make([]byte, len(c.in))...)
	}
	for range 100 { // a Read may return 0 bytes, but not for ever
		n, err := c.stream.Read(c.in[c.w:])
		c.w += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

func (c *conn) readFull(p []byte) error {
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	_, err := io.ReadFull(c.stream, p[n:])
	return err
}
