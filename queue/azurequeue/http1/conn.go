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

// conn is one connection. It belongs to one request at a time.
type conn struct {
	raw       net.Conn    // the socket
	stream    net.Conn    // raw, or TLS over it
	records   *recordConn // what TLS reads from; nil without TLS
	peeker    *peeker     // of raw
	idleSince time.Time

	in   []byte // what was read; in[r:w] is still to be used
	r, w int
}

func newConn(raw net.Conn) *conn {
	return &conn{raw: raw, stream: raw, peeker: newPeeker(raw), in: make([]byte, 4<<10)}
}

// secure puts TLS between the socket and what is read and written. It returns it for its
// handshake.
func (c *conn) startTLS(config *tls.Config) *tls.Conn {
	c.records = &recordConn{Conn: c.raw, peeker: c.peeker}
	over := tls.Client(c.records, config)
	c.stream = over
	return over
}

// unseen is how long a connection that cannot be looked at may have been idle and
// is still trusted: no server is that impatient.
const maxIdleUnchecked = time.Second

// stands tells whether an idle connection can be used: the server has neither closed it
// nor said anything that nobody asked for, which would be taken for the next answer.
// What TLS has read but not handed out counts, and so does a part of a record.
func (c *conn) isReusable() bool {
	if c.peeker.socket == nil && time.Since(c.idleSince) >= maxIdleUnchecked {
		return false
	}
	var n int
	var err error
	if c.records == nil {
		n, err = c.peeker.Read(c.in[:1]) // which is empty between requests
	} else {
		// TLS deals with its own messages, such as tickets, and goes on. It keeps what
		// it has read of a record when its read times out.
		c.records.peek = true
		n, err = c.stream.Read(c.in[:1])
		c.records.peek = false
	}
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded) && (c.records == nil || c.records.atRecordBoundary())
}

// abort makes reading and writing fail. It may be called at any time, and what
// cannot get a deadline is closed already.
func (c *conn) abort() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// close closes the socket. TLS is not told: nothing is under way, or all is lost.
func (c *conn) close() { _ = c.raw.Close() }

// exchange sends a request and reads its answer. It tells whether the connection
// can be used again.
func (c *conn) roundTrip(request []byte) (answer *http.Response, again bool, err error) {
	if _, err := c.stream.Write(request); err != nil {
		return c.readRefusal(err)
	}
	answer, again, err = c.readResponse()
	if errors.Is(err, io.EOF) {
		err = errClosedEarly
	}
	return answer, again && c.r == c.w, err
}

// refusal reads the answer of a server that would not hear a request to its end: what it
// says is worth more than the error of the write. Only that it refuses is believed.
func (c *conn) readRefusal(broken error) (answer *http.Response, again bool, err error) {
	answer, _, err = c.readResponse()
	if err != nil {
		return nil, false, broken
	}
	if answer.StatusCode < http.StatusBadRequest {
		_ = answer.Body.Close() // which only gives its buffer back
		return nil, false, broken
	}
	return answer, false, nil
}

// fill reads more, at least a byte.
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
	for range 100 { // a reader may return nothing, but not for ever
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

// read reads exactly what fits into p.
func (c *conn) readFull(p []byte) error {
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	_, err := io.ReadFull(c.stream, p[n:])
	return err
}
