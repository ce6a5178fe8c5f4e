package http1

import (
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// conn is one connection. It belongs to one request at a time.
type conn struct {
	raw       net.Conn // the socket
	wire      net.Conn // raw, or TLS over it
	idleSince time.Time

	in   []byte // what was read; in[r:w] is still to be used
	r, w int

	socket syscall.RawConn    // of raw; nil when it has none
	probe  func(uintptr) bool // c.look, made once
	quiet  bool               // what probe has found
}

func newConn(raw, wire net.Conn) *conn {
	c := &conn{raw: raw, wire: wire, in: make([]byte, 4<<10)}
	if s, ok := raw.(syscall.Conn); ok {
		c.socket, _ = s.SyscallConn() // nil with an error
	}
	c.probe = c.look
	return c
}

// unseen is how long a connection that cannot be looked at may have been idle and
// is still trusted: no server is that impatient.
const unseen = time.Second

// stands tells whether an idle connection can be used: the server has neither
// closed it nor said anything that nobody asked for.
func (c *conn) stands() bool {
	if c.socket == nil || !canLook {
		return time.Since(c.idleSince) < unseen
	}
	c.quiet = false
	return c.socket.Read(c.probe) == nil && c.quiet
}

// abort makes reading and writing fail. It may be called at any time, and what
// cannot get a deadline is closed already.
func (c *conn) abort() { _ = c.raw.SetDeadline(time.Unix(1, 0)) }

// close closes the socket. TLS is not told: nothing is under way, or all is lost.
func (c *conn) close() { _ = c.raw.Close() }

// exchange sends a request and reads its answer. It tells whether the connection
// can be used again.
func (c *conn) exchange(request []byte) (answer *http.Response, again bool, err error) {
	if _, err := c.wire.Write(request); err != nil {
		return nil, false, err
	}
	answer, again, err = c.answer()
	if errors.Is(err, io.EOF) {
		err = errClosedEarly
	}
	return answer, again && c.r == c.w, err
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
		n, err := c.wire.Read(c.in[c.w:])
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
func (c *conn) read(p []byte) error {
	n := copy(p, c.in[c.r:c.w])
	c.r += n
	_, err := io.ReadFull(c.wire, p[n:])
	return err
}
