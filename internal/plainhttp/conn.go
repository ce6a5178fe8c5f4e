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

// What a connection does.
const (
	idle   int32 = iota // it waits for the whole head of a request
	active              // it answers a request
	closed              // it is closed by the server, or handed over
)

const (
	smallHeadSize = 4 << 10  // how much is read at once
	maxHeadSize   = 16 << 10 // the largest head of a plain request

	// heldBack is how much of answers may wait for the next one.
	maxBuffered = 64 << 10
)

// conn is one connection. All of it belongs to its goroutine, but for state and for
// closing raw.
type conn struct {
	server *Server
	raw    net.Conn
	state  atomic.Int32

	in        []byte // what was read; in[r:w] is still to be used
	r, w      int
	small     []byte  // in, mostly
	large     *[]byte // in, when a head needs it: from heads, or nil
	first     bool    // no request has come yet
	headTimed bool    // the time for the head has
	afterPost bool    // the last request was a POST

	readBy, writeBy instant // the deadlines, 0 for none
	broken          bool    // it cannot be written to

	cancel   context.CancelFunc // ends the requests' context
	template *http.Request      // what all requests have in common

	request  request
	body     body
	response response

	out      []byte      // answers that are still to be sent
	complete int         // how much of out is whole answers
	pooled   *[]byte     // from answers when there is an out, or nil
	vectors  [2][]byte   // what buffers is made of
	buffers  net.Buffers // for writing two pieces at once
}

// heads and answers hold what takes more room than an idle connection has.
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

// serve answers requests until the connection is over or handed over. Its context is
// made here, for the hook may take its time.
func (c *conn) serve() {
	defer c.server.untrack(c)
	handedOver := false
	defer func() {
		if !handedOver { // also when a handler has ended the goroutine
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
		handedOver = true
		c.handOver()
	}
}

// handOver gives the connection to net/http as if nothing had been read.
func (c *conn) handOver() {
	read := bytes.Clone(c.in[c.r:c.w])
	c.shrink()
	_ = c.raw.SetDeadline(time.Time{}) // when that fails, so will net/http's next step
	c.server.handoff.send(&resumedConn{Conn: c.raw, read: read})
}

// loop answers plain requests. It returns whether it has ended before an odd one, with
// all others answered.
func (c *conn) loop() (odd bool) {
	for {
		switch c.next() {
		case otherHead:
			return c.flushToIdle()
		case noHead:
			return false
		}
		if c.state.Load() != active && !c.state.CompareAndSwap(idle, active) {
			return false // it was closed, for nothing seemed to have come
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

// verdict is what next has found.
type headKind int

const (
	noHead headKind = iota // the connection is over
	otherHead
	plainHead
)

// next reads until there is a plain head, which it parses, or an odd one, or no more.
func (c *conn) next() headKind {
	if !c.first && !c.awaitRequest() {
		return noHead
	}
	seen := 0  // how much of in[r:w] has no end of a head
	lines := 0 // how much of it are plain lines
	for {
		text := c.in[c.r:c.w]
		if i := bytes.Index(text[seen:], crlfcrlf); i >= 0 {
			end := seen + i + len(crlfcrlf)
			if !c.request.parse(string(text[:end])) || !c.request.complete() {
				return otherHead
			}
			c.r += end
			return plainHead
		}
		// net/http refuses a line as soon as it has come, so an odd one must not wait.
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
				return otherHead // net/http tells who has left in the middle of it
			}
			return noHead
		}
		seen = max(len(text)-len(crlfcrlf)+1, 0)
	}
}

var crlfcrlf = []byte("\r\n\r\n")

// begin waits for the beginning of another request, as many bytes as net/http does. Of
// those it leaves out line breaks that old clients send after the body of a POST (RFC
// 9112, section 2.2).
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

// more reads more of a head. When there is no more, it tells whether that is because the
// client has ended.
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
	case !c.headTimed && !c.first: // from when the first one was accepted
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

// makeRoom makes room behind what was read, of which there is less than a large head.
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

// shrink gives a large buffer back, with nothing in it that is still to be used.
func (c *conn) shrink() {
	if c.large != nil {
		headBuffers.Put(c.large)
		c.in, c.large = c.small, nil
	}
}

// rest sends all answers and makes the connection one that the server may close. It
// returns whether it may go on.
//
// The server first says that it is closing and then closes what is idle; here it is the
// other way round, so that one of the two sees what the other did.
func (c *conn) flushToIdle() bool {
	if !c.flush() {
		return false
	}
	c.state.CompareAndSwap(active, idle)
	return !c.server.closing.Load()
}

// exchange has a request answered. It returns whether another one may follow.
func (c *conn) exchange() (again bool) {
	c.first, c.headTimed = false, false
	r := c.request.http
	*r = *c.template
	c.request.fill(r)
	c.afterPost = r.Method == http.MethodPost
	r.Body = c.body.begin(r.ContentLength)
	c.response.reset(r.Method)
	again = c.handle(r)
	*r = http.Request{} // so that an idle connection keeps nothing
	c.request.clear()
	c.response.clear()
	return again
}

// handle calls the handler, and loses the connection when it panics: then what it has
// begun to answer is not sent.
func (c *conn) handle(r *http.Request) (again bool) {
	returned := false
	defer func() {
		if returned {
			return
		}
		c.out = c.out[:c.complete]
		c.flush()
		if caught := recover(); caught != nil && caught != any(http.ErrAbortHandler) {
			stack := make([]byte, 64<<10)
			stack = stack[:runtime.Stack(stack, false)]
			c.server.logf("http: panic serving %v: %v\n%s", c.template.RemoteAddr, caught, stack)
		}
	}()
	c.server.handler.ServeHTTP(&c.response, r)
	again = c.response.finish()
	c.complete = len(c.out)
	returned = true
	return again
}

// flush sends what there is of answers, and returns whether that could be sent, and
// everything before it.
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

// flushWhole sends the answers to earlier requests.
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

// flushWith sends what there is of answers, and p behind it.
func (c *conn) flushWith(p []byte) error {
	if c.broken {
		return errBroken
	}
	c.writeWithin(c.server.writeTimeout)
	c.vectors = [2][]byte{c.out, p}
	c.buffers = c.vectors[:]
	_, err := c.buffers.WriteTo(c.raw)
	c.vectors = [2][]byte{}
	c.broken = err != nil
	c.out, c.complete = c.out[:0], 0
	return err
}

var errBroken = errors.New("the connection is broken")

// room makes an out that can be appended to.
func (c *conn) ensureOut() {
	if c.pooled == nil {
		c.pooled = responseBuffers.Get().(*[]byte)
		c.out = (*c.pooled)[:0]
	}
}
