package emulator

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/queuexml"
)

// write sends the response.
func (c *call) write(w http.ResponseWriter) {
	if c.status != http.StatusNoContent {
		c.set("Content-Length", strconv.Itoa(len(c.body)))
	}
	w.WriteHeader(c.status)
	if len(c.body) > 0 && c.request.Method != http.MethodHead {
		_, _ = w.Write(c.body) // a client that left is no concern of ours
	}
}

// answered counts an answer and logs it.
func (c *call) countResponse(f *failure) {
	c.tally.answers[c.status/100].Add(1)
	if c.request.Method != http.MethodHead {
		c.tally.sent.Add(int64(len(c.body)))
	}
	code := ""
	if f != nil {
		code = f.code
		if f.status == http.StatusServiceUnavailable {
			c.server.counters.busy.Add(1)
		}
	}
	c.logRequest(c.status, code)
}

// call is one request on its way. It belongs to one goroutine.
type call struct {
	server    *Server
	request   *http.Request
	operation Operation
	handle    func(*call) *failure

	resource     string        // the path as it was sent
	hostStyle    bool          // the account is in the host, not in the path
	account      string        // the three parts of the address, decoded
	accountState *accountState // the account, or nil when there is none of that name
	secondary    bool          // the account's secondary location
	queue        string
	message      string
	query        query
	version      string  // of the protocol
	claims       *claims // of the token, when one was shown

	header      http.Header // of the response
	values      []string    // what the first values in header are made of; not used again, others may keep it
	tally       *tally      // of the operation
	injection   injection   // what goes wrong
	gotMessages int         // how many messages GetMessages has found
	began       time.Time   // only with a log
	limited     bool        // a limit has refused it

	status int
	body   []byte  // the response's document; taken from buffer
	buffer *[]byte // from buffers, or nil
	input  *[]byte // the request's body; from buffers, or nil when there is none

	parameters [4]parameter // room for query
	signedText []byte       // room for what was signed
	collated   bool         // what is signed has its headers in the order of languages
}

// calls are used again: with the room in them they are larger than all else that a
// request needs.
var calls = sync.Pool{New: func() any { return &call{signedText: make([]byte, 0, typicalSignedText)} }}

// buffers hold the documents of responses and the bodies of requests, 1 KiB to
// some 2 MiB.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// largest is the capacity up to which a buffer is worth keeping.
const maxPooled = 256 << 10

// room returns an empty buffer that is good until release.
func (c *call) responseBuffer() []byte {
	if c.buffer == nil {
		c.buffer = buffers.Get().(*[]byte)
	}
	return (*c.buffer)[:0]
}

func (c *call) release() {
	if c.buffer != nil && cap(c.body) <= maxPooled {
		if cap(c.body) > cap(*c.buffer) {
			*c.buffer = c.body[:0]
		}
		buffers.Put(c.buffer)
	}
	if c.input != nil {
		buffers.Put(c.input)
	}
	room := c.signedText[:0]
	if cap(room) > maxPooled {
		room = nil
	}
	*c = call{signedText: room}
	calls.Put(c)
}

// usualValues is how many headers a response has, hardly ever more.
const typicalHeaders = 8

// set sets a header of the response. The name is in canonical form.
func (c *call) set(name, value string) {
	if c.values == nil {
		c.values = make([]string, 0, typicalHeaders)
	}
	n := len(c.values)
	c.values = append(c.values, value)
	c.header[name] = c.values[n : n+1 : n+1]
}

// begin sets the headers that every response has.
func (c *call) setCommonHeaders() {
	s, h := c.server, c.header
	c.set("X-Ms-Request-Id", s.requestID())
	h["Date"] = s.date()
	h["Server"] = serverName
	h["X-Ms-Version"] = versionName
	if id := firstValue(c.request.Header, "X-Ms-Client-Request-Id"); isVisibleASCII(id) {
		c.set("X-Ms-Client-Request-Id", id)
	}
}

// visible reports whether an id is one that the service sends back: up to 1,024
// visible characters of ASCII.
func isVisibleASCII(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= 1024
}

// run carries out a request whose operation is known.
func (c *call) execute() *failure {
	if c.operation == Preflight { // asks for everyone, in no version
		if !sleep(c.request.Context(), c.injection.delay) {
			return errTimedOut
		}
		return c.runWithFault()
	}
	if f := c.checkVersion(); f != nil {
		return f
	}
	if f := c.authorize(); f != nil {
		return f
	}
	if f := c.checkRequestLimit(); f != nil {
		return f
	}
	if f := c.checkNames(); f != nil {
		return f
	}
	timeout, f := c.query.number("timeout", 30, 1, 1<<31-1)
	if f != nil {
		return f
	}
	// The body is read first: only then does net/http watch the connection, and
	// end the context of a client that leaves.
	if c.operation.hasBody() {
		if f := c.receive(); f != nil {
			return f
		}
	}
	before := c.server.delay/2 + c.injection.delay
	after := c.server.delay - c.server.delay/2
	if limit := time.Duration(timeout) * time.Second; before+after > limit {
		sleep(c.request.Context(), limit)
		return errTimedOut
	}
	if !sleep(c.request.Context(), before) {
		return errTimedOut
	}
	f = c.runWithFault()
	sleep(c.request.Context(), after)
	return f
}

// pause waits, and reports whether the context lasted.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse turns the response into an error document.
func (c *call) writeError(f *failure) {
	h := c.header
	h["X-Ms-Error-Code"] = []string{f.code}
	h["Content-Type"] = typeXML
	if f.allow != "" {
		h["Allow"] = []string{f.allow}
	}
	if f.status == http.StatusUnauthorized {
		h["Www-Authenticate"] = []string{challenge}
	}
	c.status = f.status
	c.body = queuexml.AppendError(c.responseBuffer(), f.code,
		f.message+"\nRequestId:"+h["X-Ms-Request-Id"][0]+"\nTime:"+time.Now().UTC().Format("2006-01-02T15:04:05.0000000Z"), f.details)
}

// document answers with XML.
func (c *call) document(status int, body []byte) *failure {
	c.header["Content-Type"] = typeXML
	c.status, c.body = status, body
	return nil
}

// noContent answers an operation that has nothing to say but its success.
func (c *call) noContent(err error) *failure {
	if err != nil {
		return toFailure(err)
	}
	c.status = http.StatusNoContent
	return nil
}
