package plainhttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// States of a connection.
const (
	idle   int32 = iota // waits for a complete head
	active              // responds to a request
	closed              // closed by the server, or handed over
)

const (
	smallHeadSize = 4 << 10  // usual size of the read buffer
	maxHeadSize   = 16 << 10 // largest head of a plain request

	// maxBuffered is how many bytes of responses may wait for the next one.
	maxBuffered = 32 << 10
)

// conn is a connection. Its goroutine owns all of it, except that the server changes state and
// closes raw.
type conn struct {
	server *Server
	raw    net.Conn
	state  atomic.Int32

	in        []byte // read buffer; in[r:w] is unread
	r, w      int
	small     []byte  // in, unless a head needs more
	large     *[]byte // in for a larger head, from headBuffers; or nil
	first     bool    // no request has been read yet
	headTimed bool    // the deadline for the head is set
	afterPost bool    // the last request was a POST

	readBy, writeBy instant // current deadlines; noDeadline for none
	broken          bool    // a write has failed

	cancel   context.CancelFunc // ends the context of the requests
	template *http.Request      // what all requests have in common

	request  request
	body     body
	response response

	out      []byte      // responses to be sent
	complete int         // length of the complete responses in out
	pooled   *[]byte     // buffer of out, from responseBuffers; or nil
	vectors  [2][]byte   // backing array of buffers
	buffers  net.Buffers // for vectored writes
}

// headBuffers and responseBuffers hold buffers that an idle connection does not need.
var (
	headBuffers     = sync.Pool{New: func() any { b := make([]byte, maxHeadSize); return &b }}
	responseBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
)

func newConn(s *Server, raw net.Conn) *conn {
	c := &conn{server: s, raw: raw, small: make([]byte, smallHeadSize), first: true}
	c.in = c.small
	c.request.header = make(http.Header) // small maps are faster: no room for more than most need
	c.body.conn = c
	c.response.conn, c.response.header = c, make(http.Header)
	return c
}

// serve responds to requests until the connection ends or is handed over. It makes the
// connection's context, because the ConnContext hook may block.
func (c *conn) serve() {
	defer c.server.untrack(c)
	handedOver := false
	defer func() {
		if !handedOver {
			_ = c.raw.Close() // all that could be sent was sent
		}
	}()
	ctx, cancel := context.WithCancel(c.server.base)
	defer cancel()
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, c.raw.LocalAddr())
	if c.server.connContext != nil {
		ctx = c.server.connContext(ctx, c.raw)
	}
	c.cancel = cancel
	c.template = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}).WithContext(ctx)
	if from := c.raw.RemoteAddr(); from != nil {
		c.template.RemoteAddr = from.String()
	}
	c.request.http = new(http.Request)
	c.readWithin(c.server.headerTimeout) // from when it was accepted
	if odd := c.loop(); odd && c.state.CompareAndSwap(idle, closed) {
		handedOver = true // to net/http, together with the bytes that were read
		read := bytes.Clone(c.in[c.r:c.w])
		c.shrink()
		_ = c.raw.SetDeadline(time.Time{}) // when that fails, so will net/http's next step
		c.server.handoff.send(&resumedConn{Conn: c.raw, read: read})
	}
}

// loop responds to plain requests. It returns true if it stopped before one that is not plain,
// with all earlier responses sent.
func (c *conn) loop() (odd bool) {
	for {
		switch c.next() {
		case otherHead:
			return c.flushToIdle()
		case noHead:
			return false
		}
		if c.state.Load() != active && !c.state.CompareAndSwap(idle, active) {
			return false // Shutdown closed it as idle
		}
		again := c.exchange()
		if !again || len(c.out) > maxBuffered {
			again = c.flush() && again
		}
		if !again {
			return false
		}
	}
}

// headKind is the result of next.
type headKind int

const (
	noHead headKind = iota // the connection has ended
	otherHead
	plainHead
)

// next reads and parses a plain head, or reads enough to know that the head is not plain.
func (c *conn) next() headKind {
	if !c.first && !c.awaitRequest() {
		return noHead
	}
	seen := 0  // bytes of in[r:w] searched for the end of the head
	lines := 0 // bytes of it that are plain lines
	for {
		text := c.in[c.r:c.w]
		if i := bytes.Index(text[seen:], crlfcrlf); i >= 0 {
			end := seen + i + len(crlfcrlf)
			if !c.request.parse(string(text[:end])) || !c.request.complete() ||
				c.server.HandOver != nil && c.server.HandOver(c.request.method, c.request.url.RawQuery) {
				return otherHead
			}
			c.r += end
			return plainHead
		}
		// net/http refuses an invalid line as soon as it is read: check complete lines at once.
		if n := bytes.LastIndexByte(text[lines:], '\n') + 1; n > 0 {
			lines += n
			if !c.request.parse(string(text[:lines])) {
				return otherHead
			}
		}
		if len(text) == maxHeadSize {
			return otherHead
		}
		if more, ended := c.readMore(); !more {
			if ended && len(text) > 0 {
				return otherHead // net/http handles an incomplete head
			}
			return noHead
		}
		seen = max(len(text)-len(crlfcrlf)+1, 0)
	}
}

var crlfcrlf = []byte("\r\n\r\n")

// awaitRequest waits for the first bytes of a request, as many as net/http does. Of those it
// skips line breaks that old clients send after a POST body (RFC 9112, section 2.2).
func (c *conn) awaitRequest() bool {
	const beginning = 4
	for c.w-c.r < beginning {
		if more, _ := c.readMore(); !more {
			return false
		}
	}
	for i := 0; c.afterPost && i < beginning; i++ {
		if b := c.in[c.r]; b != '\r' && b != '\n' {
			break
		}
		c.r++
	}
	return true
}

// readMore reads more of a head. If it cannot, ended reports whether the client has closed the
// connection.
func (c *conn) readMore() (readMore, ended bool) {
	if !c.flushToIdle() {
		return false, false
	}
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
		c.shrink()
		if !c.first {
			c.readWithin(c.server.idleTimeout)
		}
	case !c.headTimed && !c.first: // the first head is timed from when the connection was accepted
		c.headTimed = true
		c.readWithin(c.server.headerTimeout)
	}
	if c.w == len(c.in) {
		c.makeRoom()
	}
	n, err := c.raw.Read(c.in[c.w:])
	c.w += n
	return n > 0 || err == nil, errors.Is(err, io.EOF)
}

// makeRoom makes space in the buffer behind the unread bytes, of which there are less than
// maxHeadSize.
func (c *conn) makeRoom() {
	if c.r == 0 {
		c.large = headBuffers.Get().(*[]byte)
		c.in = *c.large
		c.w = copy(c.in, c.small)
		return
	}
	c.w = copy(c.in, c.in[c.r:c.w])
	c.r = 0
}

// shrink returns a large buffer, which must have no unread bytes.
func (c *conn) shrink() {
	if c.large != nil {
		headBuffers.Put(c.large)
		c.in, c.large = c.small, nil
	}
}

// flushToIdle sends all responses and marks the connection as idle, so that the server may close
// it. It reports whether the connection may go on.
//
// The server first sets closing and then closes idle connections; this does the opposite order,
// so that one of the two sees the other.
func (c *conn) flushToIdle() bool {
	if !c.flush() {
		return false
	}
	c.state.CompareAndSwap(active, idle)
	return !c.server.closing.Load()
}

// exchange handles one request, and reports whether another one may follow.
func (c *conn) exchange() (again bool) {
	c.first, c.headTimed = false, false
	r := c.request.http
	*r = *c.template
	q := &c.request
	r.Method, r.RequestURI, r.Host = q.method, q.target, q.host
	r.URL, r.Header, r.ContentLength = &q.url, q.header, q.length
	c.afterPost = r.Method == http.MethodPost
	r.Body = c.body.begin(r.ContentLength)
	c.response.reset(r.Method)
	again = c.handle(r)
	*r = http.Request{} // an idle connection keeps no references
	c.request.clear()
	c.response.clear()
	return again
}

// handle calls the handler. If it panics, its response is dropped and the connection closed.
func (c *conn) handle(r *http.Request) (again bool) {
	defer func() {
		caught := recover()
		if caught == nil {
			return
		}
		c.out = c.out[:c.complete]
		c.flush()
		if caught != any(http.ErrAbortHandler) {
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			c.server.logf("http: panic serving %v: %v\n%s", c.template.RemoteAddr, caught, stack)
		}
	}()
	c.server.Handler.ServeHTTP(&c.response, r)
	again = c.response.finish()
	c.complete = len(c.out)
	return again
}

// flush sends all responses, and reports whether all writes so far have succeeded.
func (c *conn) flush() bool {
	if len(c.out) > 0 && !c.broken {
		c.writeWithin(c.server.writeTimeout)
		_, err := c.raw.Write(c.out)
		c.broken = err != nil
	}
	if c.pooled != nil {
		if cap(c.out) <= 2*maxBuffered {
			*c.pooled = c.out[:0]
		}
		responseBuffers.Put(c.pooled)
		c.out, c.pooled = nil, nil
	}
	c.complete = 0
	return !c.broken
}

// flushComplete sends the responses to earlier requests.
func (c *conn) flushComplete() {
	if c.complete == 0 {
		return
	}
	if !c.broken {
		c.writeWithin(c.server.writeTimeout)
		_, err := c.raw.Write(c.out[:c.complete])
		c.broken = err != nil
	}
	c.response.headEnd -= c.complete
	c.out = c.out[:copy(c.out, c.out[c.complete:])]
	c.complete = 0
}

func (c *conn) flushWith(p []byte) error {
	if c.broken {
		return errBroken
	}
	c.writeWithin(c.server.writeTimeout)
	c.vectors = [2][]byte{c.out, p}
	c.buffers = c.vectors[:]
	var err error
	if wrapper, ok := c.raw.(vectorWriter); ok {
		_, err = wrapper.WriteVector(&c.buffers)
	} else {
		_, err = c.buffers.WriteTo(c.raw)
	}
	c.vectors = [2][]byte{}
	c.broken = err != nil
	c.out, c.complete = c.out[:0], 0
	return err
}

// vectorWriter is a connection around another one that keeps vectored writes together.
type vectorWriter interface {
	WriteVector(buffers *net.Buffers) (int64, error)
}

var errBroken = errors.New("the connection is broken")

func (c *conn) ensureOut() {
	if c.pooled == nil {
		c.pooled = responseBuffers.Get().(*[]byte)
		c.out = (*c.pooled)[:0]
	}
}

// instant is a time as the duration since the server was created plus an hour. It is cheaper than
// a [time.Time] and never 0.
type instant time.Duration

func (s *Server) now() instant { return instant(time.Since(s.start) + time.Hour) }

func (s *Server) toTime(at instant) time.Time {
	if at == noDeadline {
		return time.Time{}
	}
	return s.start.Add(time.Duration(at) - time.Hour)
}

// readWithin lets reads fail after d, or up to a sixteenth later; 0 means never. On a busy
// connection most calls keep an earlier deadline: setting one costs as much as parsing a request.
func (c *conn) readWithin(d time.Duration) {
	if by, changed := c.server.deadline(c.readBy, d); changed {
		c.readBy = by
		_ = c.raw.SetReadDeadline(c.server.toTime(by)) // a closed one fails at reading
	}
}

func (c *conn) writeWithin(d time.Duration) {
	if by, changed := c.server.deadline(c.writeBy, d); changed {
		c.writeBy = by
		_ = c.raw.SetWriteDeadline(c.server.toTime(by))
	}
}

// noDeadline means that no deadline is set.
const noDeadline instant = 0

func (s *Server) deadline(set instant, d time.Duration) (by instant, changed bool) {
	if d == 0 {
		return noDeadline, set != noDeadline
	}
	least := s.now() + instant(d)
	most := least + instant(d/16)
	return most, set < least || set > most
}
