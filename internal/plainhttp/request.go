package plainhttp

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/internal/httpsyntax"
)

// maxBody is the largest body of a plain request, in bytes: as much as net/http drains before it
// closes the connection.
const maxBody = 256 << 10

// maxKeptHeaders is the number of headers above which maps are not reused.
const maxKeptHeaders = 64

// request is a parsed head. Its strings are substrings of the text, of which there is one a
// request, except for the names of some headers.
type request struct {
	method, target, host string
	length               int64 // of the body
	hosts, lengths       int   // numbers of these headers
	url                  url.URL
	header               http.Header
	values               []string      // backing array of the slices in header
	http                 *http.Request // passed to the handler
}

// clear resets the request. Large maps are not kept.
func (q *request) clear() {
	if len(q.header) > maxKeptHeaders {
		q.header, q.values = make(http.Header), nil
	}
	clear(q.header)
	clear(q.values)
	*q = request{header: q.header, values: q.values[:0], http: q.http}
}

// parse parses the request line and complete header lines of a head that need not be complete,
// and reports whether they are plain so far. If not, the request must not be used.
func (q *request) parse(text string) (plain bool) {
	if q.method != "" {
		q.clear()
	}
	text, plain = q.parseLine(text)
	for plain && text != "" {
		if text == "\r\n" {
			return true
		}
		text, plain = q.parseHeader(text)
	}
	return plain
}

// complete reports whether the parsed head is that of a plain request.
func (q *request) complete() bool {
	if q.hosts != 1 {
		return false
	}
	if !plainPath(&q.url, q.target) {
		parsed, err := url.ParseRequestURI(q.target)
		if err != nil {
			return false
		}
		q.url = *parsed
	}
	return q.url.Host == "" // an absolute target would override Host
}

// methods are the methods of plain requests.
var methods = [...]string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut, http.MethodHead, http.MethodOptions}

func (q *request) parseLine(text string) (rest string, plain bool) {
	for _, method := range methods {
		if n := len(method); len(text) > n && text[n] == ' ' && text[:n] == method {
			q.method = method
			break
		}
	}
	if q.method == "" {
		return "", false
	}
	text = text[len(q.method)+1:]
	end := 0
	for end < len(text) && ' ' < text[end] && text[end] < 0x7F {
		end++
	}
	if q.target = text[:end]; q.target == "" || q.target[0] != '/' {
		return "", false // absolute, authority or asterisk form
	}
	return strings.CutPrefix(text[end:], " HTTP/1.1\r\n")
}

// parseHeader parses one header line (RFC 9112, section 5) and returns the rest.
func (q *request) parseHeader(text string) (rest string, plain bool) {
	name, text, plain := httpsyntax.CutName(text)
	if !plain {
		return "", false
	}
	end := 0
	for end < len(text) && (' ' <= text[end] && text[end] < 0x7F || text[end] == '\t') {
		end++
	}
	rest, plain = strings.CutPrefix(text[end:], "\r\n")
	if !plain {
		return "", false
	}
	return rest, q.add(name, httpsyntax.Trim(text[:end]))
}

// add stores a header, and reports whether it is plain.
func (q *request) add(name, value string) (plain bool) {
	switch name {
	case "Host":
		q.host = value
		q.hosts++
		return q.hosts == 1 && httpsyntax.IsPlainHost(value)
	case "Content-Length":
		q.lengths++
		if q.lengths > 1 || !q.setLength(value) {
			return false
		}
	case "Connection":
		if !strings.EqualFold(value, "keep-alive") {
			return false
		}
	case "Expect", "Pragma", "Trailer", "Transfer-Encoding", "Upgrade":
		return false // net/http acts on them
	}
	if known := q.header[name]; known != nil {
		q.header[name] = append(known, value) // append reallocates: the capacity is 1
		return true
	}
	q.values = append(q.values, value)
	n := len(q.values)
	q.header[name] = q.values[n-1 : n : n]
	return true
}

// setLength parses a Content-Length of digits.
func (q *request) setLength(value string) (plain bool) {
	for i := range len(value) {
		b := value[i]
		if b < '0' || b > '9' {
			return false
		}
		if q.length = 10*q.length + int64(b-'0'); q.length > maxBody {
			return false
		}
	}
	return value != ""
}

// plainPath parses a target as [url.ParseRequestURI] does, if its path needs no escaping, as
// nearly all do.
func plainPath(u *url.URL, target string) bool {
	end := 0
	for end < len(target) && unescapedPath[target[end]] {
		end++
	}
	if strings.HasPrefix(target, "//") {
		return false
	}
	*u = url.URL{Path: target[:end]}
	if end == len(target) {
		return true
	}
	if target[end] != '?' || end == len(target)-1 {
		return false
	}
	u.RawQuery = target[end+1:]
	return true
}

// unescapedPath are the characters of a path that are never escaped.
var unescapedPath = func() (table [256]bool) {
	for b := range table {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9':
			table[b] = true
		case b == '-', b == '_', b == '.', b == '~', b == '/':
			table[b] = true
		}
	}
	return table
}()

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
