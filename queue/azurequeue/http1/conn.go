package http1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
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

// recordConn is the connection below TLS. It can read without waiting, and tracks where TLS
// records end, because TLS does not report whether it holds a partial one.
type recordConn struct {
	net.Conn
	peeker *peeker
	peek   bool // read without waiting

	header    [5]byte // of the current record
	headerLen int     // bytes of the header read
	remaining int     // bytes of the record after its header
}

// Read implements [io.Reader].
func (b *recordConn) Read(p []byte) (n int, err error) {
	if b.peek {
		n, err = b.peeker.Read(p)
	} else {
		n, err = b.Conn.Read(p)
	}
	b.trackRecords(p[:n])
	return n, err
}

// trackRecords tracks the record boundaries (RFC 8446, section 5.1): a header has the type, the
// version and two bytes of length.
func (b *recordConn) trackRecords(p []byte) {
	for len(p) > 0 {
		if b.remaining > 0 {
			n := min(b.remaining, len(p))
			b.remaining -= n
			p = p[n:]
			continue
		}
		n := copy(b.header[b.headerLen:], p)
		b.headerLen += n
		p = p[n:]
		if b.headerLen == len(b.header) {
			b.headerLen, b.remaining = 0, int(b.header[3])<<8|int(b.header[4])
		}
	}
}

// atRecordBoundary reports whether the bytes read so far end with a whole record.
func (b *recordConn) atRecordBoundary() bool { return b.headerLen == 0 && b.remaining == 0 }

// peeker reads the bytes that a socket has already received.
type peeker struct {
	socket   syscall.RawConn    // nil if the connection has none that can be peeked at
	readFunc func(uintptr) bool // k.read as a value, to avoid an allocation a call
	into     []byte
	n        int   // result of read
	err      error // result of read
}

func newPeeker(raw net.Conn) *peeker {
	k := &peeker{}
	k.readFunc = k.read
	if s, ok := raw.(syscall.Conn); ok && canPeek {
		k.socket, _ = s.SyscallConn() // nil with an error
	}
	return k
}

// Read reads without waiting. The error is [os.ErrDeadlineExceeded] if nothing has been received,
// or the socket cannot be peeked at.
func (k *peeker) Read(p []byte) (int, error) {
	if k.socket == nil {
		return 0, os.ErrDeadlineExceeded
	}
	k.into = p
	err := k.socket.Read(k.readFunc)
	k.into = nil
	if err != nil { // closed, or its deadline has passed
		return 0, net.ErrClosed
	}
	return k.n, k.err
}
