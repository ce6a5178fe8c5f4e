package emulator

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/naming"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue/driver"
)

func (c *call) write(w http.ResponseWriter) {
	if c.status != http.StatusNoContent {
		c.set("Content-Length", strconv.Itoa(len(c.body)))
	}
	if c.conn != nil && len(c.body) > includedBytes {
		c.conn.holdAtLeast(cap(c.body))
	}
	w.WriteHeader(c.status)
	if len(c.body) > 0 && c.request.Method != http.MethodHead {
		_, _ = w.Write(c.body) // the client may have left
	}
}

func (c *call) countResponse(f *failure) {
	c.tally.responses[c.status/100].Add(1)
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

// call is a request in progress. One goroutine uses it.
type call struct {
	server    *Server
	request   *http.Request
	writer    http.ResponseWriter
	operation Operation
	verb      *verb // nil for an operation that is unknown

	resource     string        // path as sent
	hostStyle    bool          // the account is in the host
	account      string        // decoded parts of the address
	accountState *accountState // nil if the account does not exist
	secondary    bool          // the account's secondary location
	queue        string
	message      string
	query        query
	version      string  // protocol version
	claims       *claims // of the token, if there is one
	credential   string  // shared access signature in binary, "key", or "token"

	header      http.Header // response headers
	values      []string    // backing array of header values; not reused, because others may keep it
	tally       *tally      // of the operation
	injection   injection   // faults of the request
	gotMessages int         // number of messages that GetMessages returned
	began       time.Time   // set only with a log
	overQuota   bool        // refused by a quota
	stream      *stream     // to be run after the headers; or nil

	conn *countedConn // set once the request is authorized; nil in process

	status int
	body   []byte  // response document, in buffer
	buffer *[]byte // from buffers, or nil
	input  *[]byte // request body; from buffers, or nil

	parameters [4]parameter // backing array of query
	signedText []byte       // buffer for the string to sign
	collated   bool         // headers in the string to sign are in collation order
}

// calls are reused: with their buffers they are larger than everything else that a request needs.
var calls = sync.Pool{New: func() any { return &call{signedText: make([]byte, 0, typicalSignedText)} }}

// buffers hold response documents and request bodies, 1 KiB to about 2 MiB.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}

// maxPooled is the largest buffer that is kept, in bytes.
const maxPooled = 256 << 10

// responseBuffer returns an empty buffer that is valid until release.
func (c *call) responseBuffer() []byte {
	if c.buffer == nil {
		c.buffer = buffers.Get().(*[]byte)
	}
	return (*c.buffer)[:0]
}

// content returns the request body, or nil if there is none.
func (c *call) content() []byte {
	if c.input == nil {
		return nil
	}
	return *c.input
}

// reserve waits until the endpoint has memory for a body or a response.
func (c *call) reserve(bytes int) *failure {
	if c.conn == nil || bytes <= includedBytes || c.conn.hold(int64(bytes)) {
		return nil
	}
	return errNoMemory
}

func (c *call) release() {
	if c.conn != nil {
		c.conn.release()
	}
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

// typicalHeaders is the usual number of response headers.
const typicalHeaders = 8

// set sets a response header. The name must be in canonical form.
func (c *call) set(name, value string) {
	if c.values == nil {
		c.values = make([]string, 0, typicalHeaders)
	}
	n := len(c.values)
	c.values = append(c.values, value)
	c.header[name] = c.values[n : n+1 : n+1]
}

func (c *call) setCommonHeaders() {
	s, h := c.server, c.header
	var id [16]byte
	copy(id[:], s.idPrefix[:])
	binary.BigEndian.PutUint64(id[8:], s.requests.Add(1))
	c.set("X-Ms-Request-Id", naming.FormatGUID(id))
	h["Date"] = s.date()
	h["Server"] = serverName
	h["Cache-Control"] = noStore // a dequeue is a GET: a cache would return the same messages again
	h["X-Ms-Version"] = versionName
	if id := firstValue(c.request.Header, "X-Ms-Client-Request-Id"); isVisibleASCII(id) {
		c.set("X-Ms-Client-Request-Id", id)
	}
}

// isVisibleASCII reports whether the service would return this client request id: up to 1,024
// visible ASCII characters.
func isVisibleASCII(id string) bool {
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= 1024
}

// execute authorizes and executes a request with a known operation.
func (c *call) execute() *failure {
	if c.operation == Preflight { // needs neither version nor authorization
		if !c.wait(c.injection.delay) {
			return errTimedOut
		}
		return c.runWithFault()
	}
	if f := c.checkVersion(); f != nil {
		return f
	}
	if f := c.authenticate(); f != nil {
		return f
	}
	if c.secondary && c.verb.traits&reads == 0 {
		return errReadOnly
	}
	if c.conn = countedConnOf(c.request.Context()); c.conn != nil {
		c.conn.authorized()
	}
	if quota := c.accountState.requests; quota != nil && !c.operation.isControl() && !quota.take() {
		c.refusedByQuota()
		return errAccountBusy
	}
	if f := c.checkNames(); f != nil {
		return f
	}
	timeout, f := c.query.number("timeout", 30, 1, 1<<31-1)
	if f != nil {
		return f
	}
	// Read the body first: only then does net/http watch the connection and end
	// the context if the client leaves.
	if c.verb.traits&hasBody != 0 {
		if f := c.receive(); f != nil {
			return f
		}
	}
	before := c.server.delay/2 + c.injection.delay
	after := c.server.delay - c.server.delay/2
	if limit := time.Duration(timeout) * time.Second; before+after > limit {
		c.wait(limit)
		return errTimedOut
	}
	if !c.wait(before) {
		return errTimedOut
	}
	f = c.runWithFault()
	c.wait(after)
	return f
}

// wait waits, and reports whether the client is still there.
func (c *call) wait(d time.Duration) bool {
	ctx := c.request.Context()
	if d <= 0 {
		return ctx.Err() == nil // Done would make a channel
	}
	return waiting.For(d, ctx.Done())
}

// writeError turns the response into an error document.
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

func (c *call) document(status int, body []byte) *failure {
	c.header["Content-Type"] = typeXML
	c.status, c.body = status, body
	return nil
}

// noContent responds to an operation without a result.
func (c *call) noContent(err error) *failure {
	if err != nil {
		return toFailure(err)
	}
	c.status = http.StatusNoContent
	return nil
}

// logRequest logs one request; status 0 means no response. Without a log it costs a comparison.
func (c *call) logRequest(status int, code string) {
	log := c.server.log
	if log == nil {
		return
	}
	attributes := make([]slog.Attr, 0, 9)
	attributes = append(attributes, slog.String("operation", string(c.operation)))
	// An invalid name could be anything, even a misplaced receipt: do not log it.
	if c.accountState != nil {
		attributes = append(attributes, slog.String("account", c.account))
	}
	if c.queue != "" && driver.CheckName(c.queue) == nil {
		attributes = append(attributes, slog.String("queue", c.queue))
	}
	if status != 0 {
		attributes = append(attributes, slog.Int("status", status))
	}
	if code != "" {
		attributes = append(attributes, slog.String("code", code))
	}
	level := slog.LevelInfo
	if c.injection != (injection{}) {
		level = slog.LevelWarn
		attributes = append(attributes, slog.String("fault", c.injection.String()))
	}
	if c.overQuota {
		attributes = append(attributes, slog.Bool("limited", true))
	}
	attributes = append(attributes,
		slog.Duration("took", time.Since(c.began)),
		slog.String("id", c.header["X-Ms-Request-Id"][0]))
	log.LogAttrs(c.request.Context(), level, "request", attributes...)
}

// query is a request's decoded parameters in order.
type query []parameter

type parameter struct{ name, value string }

// maxParameters limits the number of parameters; the service has fewer than ten.
const maxParameters = 64

// parseQuery decodes a URL's query, into room if it suffices. Names become lower case, as in the
// string to sign.
func parseQuery(room query, raw string) (query, *failure) {
	if raw == "" {
		return nil, nil
	}
	q := room
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return nil, errInvalidQueryValue
		}
		value, err = url.QueryUnescape(value)
		if err != nil {
			return nil, errInvalidQueryValue
		}
		if len(q) == maxParameters {
			return nil, errInvalidQueryValue
		}
		q = append(q, parameter{strings.ToLower(name), value})
	}
	return q, nil
}

// get returns the value of a parameter and whether it exists. A duplicate parameter is ambiguous
// and refused.
func (q query) get(name string) (value string, found bool, f *failure) {
	for _, p := range q {
		if p.name != name {
			continue
		}
		if found {
			return "", false, errInvalidQueryValue.with(
				queuexml.Detail{Name: "QueryParameterName", Value: name},
				queuexml.Detail{Name: "Reason", Value: "It is given more than once."})
		}
		value, found = p.value, true
	}
	return value, found, nil
}

func (q query) has(name string) bool {
	return slices.ContainsFunc(q, func(p parameter) bool { return p.name == name })
}

// number returns a parameter that is a whole number from minimum to maximum, or missing if there is none.
func (q query) number(name string, missing, minimum, maximum int64) (int64, *failure) {
	value, found, f := q.get(name)
	if f != nil || !found {
		return missing, f
	}
	n, err := strconv.ParseInt(value, 10, 64) // the nearest int64 on ErrRange
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, errInvalidQueryValue.ofQuery(name, value, "It is not a whole number.")
	}
	if n < minimum || n > maximum {
		return 0, errOutOfRangeQueryValue.with(
			queuexml.Detail{Name: "QueryParameterName", Value: name},
			queuexml.Detail{Name: "QueryParameterValue", Value: value},
			queuexml.Detail{Name: "MinimumAllowed", Value: strconv.FormatInt(minimum, 10)},
			queuexml.Detail{Name: "MaximumAllowed", Value: strconv.FormatInt(maximum, 10)})
	}
	return n, nil
}

// required returns a parameter that must exist and not be empty.
func (q query) required(name string) (string, *failure) {
	value, _, f := q.get(name)
	if f != nil {
		return "", f
	}
	if value == "" {
		return "", errMissingQuery.with(queuexml.Detail{Name: "QueryParameterName", Value: name})
	}
	return value, nil
}

// sorted returns the parameters in signing order: by name, then by value. It copies them only if
// they are in another order.
func (q query) sorted() query {
	if slices.IsSortedFunc(q, compareParameters) {
		return q
	}
	s := slices.Clone(q)
	slices.SortFunc(s, compareParameters)
	return s
}

func compareParameters(a, b parameter) int {
	if c := strings.Compare(a.name, b.name); c != 0 {
		return c
	}
	return strings.Compare(a.value, b.value)
}
