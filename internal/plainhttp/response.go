package plainhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/httpsyntax"
)

// minDirectWrite is the size from which a write is sent directly instead of copied, in bytes.
const minDirectWrite = 8 << 10

// response is a connection's [http.ResponseWriter]. It is reused for every request.
type response struct {
	conn   *conn
	header http.Header

	status   int   // 0 until WriteHeader
	declared int64 // Content-Length set by the handler, or -1
	written  int64 // bytes of the body

	headEnd      int  // end of the handler's headers in conn.out
	headComplete bool // the head is complete, in out or sent

	isHead   bool // the request is a HEAD: the body is not sent
	bodyless bool // the status has no body
	closing  bool // the connection is closed after the response
	hasDate  bool
	hasType  bool // or needs none
}

// reset prepares for the next request.
func (a *response) reset(method string) {
	*a = response{conn: a.conn, header: a.header, declared: -1, isHead: method == http.MethodHead}
}

func (a *response) clear() {
	if len(a.header) > maxKeptHeaders {
		a.header = make(http.Header)
		return
	}
	clear(a.header)
}

// Header returns the headers that WriteHeader, or the first Write, sends.
func (a *response) Header() http.Header { return a.header }

// WriteHeader takes a snapshot of the headers. Later calls have no effect. 1xx responses are not
// sent.
func (a *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	}
	if a.status != 0 || status < 200 {
		return
	}
	a.status = status
	a.bodyless = status == http.StatusNoContent || status == http.StatusNotModified
	a.closing = a.conn.server.closing.Load()
	a.conn.ensureOut()
	a.conn.out = appendStatus(a.conn.out, status)
	for name, values := range a.header {
		if a.interpret(name, values) {
			a.conn.out = appendHeader(a.conn.out, name, values)
		}
	}
	a.headEnd = len(a.conn.out)
}

// interpret handles headers with a meaning for the connection, and reports whether the header is
// sent as it is.
func (a *response) interpret(name string, values []string) bool {
	switch name {
	case "Date":
		a.hasDate = len(values) > 0
	case "Content-Type":
		a.hasType = true
		return a.status != http.StatusNotModified
	case "Content-Encoding":
		a.hasType = a.hasType || len(values) > 0 && values[0] != "" // the type of encoded content is not detected
	case "Content-Length":
		if a.bodyless || len(values) == 0 {
			return false
		}
		n, err := strconv.ParseUint(httpsyntax.Trim(values[0]), 10, 63)
		if err != nil {
			return false
		}
		a.declared = int64(n)
		a.conn.out = append(strconv.AppendUint(append(a.conn.out, "Content-Length: "...), n, 10), "\r\n"...)
		return false
	case "Connection":
		if len(values) > 0 && strings.EqualFold(values[0], "close") {
			a.closing = true
		}
		return false // completeHead adds it if needed
	case "Transfer-Encoding", "Trailer":
		return false
	}
	return !strings.HasPrefix(name, http.TrailerPrefix)
}

// Write fails, as with net/http, if the status has no body or the body exceeds its
// Content-Length.
func (a *response) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if a.bodyless {
		return 0, http.ErrBodyNotAllowed
	}
	if len(p) == 0 {
		return 0, nil
	}
	a.written += int64(len(p)) // also what is refused: the length is wrong then
	if a.declared >= 0 && a.written > a.declared {
		return 0, http.ErrContentLength
	}
	if a.declared >= 0 && !a.headComplete {
		a.completeHead(p)
	}
	if a.isHead && a.headComplete {
		return len(p), nil
	}
	if a.headComplete && len(p) >= minDirectWrite {
		if err := a.conn.flushWith(p); err != nil {
			return 0, err
		}
		return len(p), nil
	}
	a.conn.out = append(a.conn.out, p...)
	return len(p), nil
}

// completeHead adds missing headers between the handler's headers and the body in out, and reads
// the rest of the request. It detects the type from the body, or as much of it as there is.
func (a *response) completeHead(body []byte) {
	if !a.conn.body.drain() {
		a.closing = true
	}
	a.headComplete = true
	if body == nil {
		body = a.conn.out[a.headEnd:] // after drain, which may move it
	}
	var room [256]byte
	more := room[:0]
	if !a.bodyless && !a.hasType && len(body) > 0 {
		more = append(append(append(more, "Content-Type: "...), http.DetectContentType(body)...), "\r\n"...)
	}
	// The length for a HEAD is unknown if the handler has written nothing.
	if !a.bodyless && a.declared < 0 && (!a.isHead || a.written > 0) {
		a.declared = a.written
		more = append(strconv.AppendInt(append(more, "Content-Length: "...), a.written, 10), "\r\n"...)
	}
	if !a.hasDate {
		more = append(time.Now().UTC().AppendFormat(append(more, "Date: "...), http.TimeFormat), "\r\n"...)
	}
	if a.closing {
		more = append(more, "Connection: close\r\n"...)
	}
	more = append(more, "\r\n"...)
	a.conn.out = slices.Insert(a.conn.out, a.headEnd, more...)
	a.headEnd += len(more)
}

// finish completes the response, and reports whether another one may follow.
func (a *response) finish() (again bool) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	if !a.headComplete {
		a.completeHead(nil)
		if a.isHead {
			a.conn.out = a.conn.out[:a.headEnd]
		}
	}
	// Closing the connection tells the client that a short body is incomplete.
	miscounted := !a.isHead && !a.bodyless && a.declared >= 0 && a.written != a.declared
	return !a.closing && !miscounted
}

func appendStatus(dst []byte, status int) []byte {
	dst = strconv.AppendInt(append(dst, "HTTP/1.1 "...), int64(status), 10)
	dst = append(dst, ' ')
	if text := http.StatusText(status); text != "" {
		dst = append(dst, text...)
	} else {
		dst = strconv.AppendInt(append(dst, "status code "...), int64(status), 10)
	}
	return append(dst, "\r\n"...)
}

// appendHeader appends a line for each value of a header. As in net/http, line breaks become
// spaces, and an invalid name is omitted.
func appendHeader(dst []byte, name string, values []string) []byte {
	if !httpsyntax.IsToken(name) {
		return dst
	}
	for _, value := range values {
		dst = append(append(dst, name...), ": "...)
		dst = append(appendValue(dst, value), "\r\n"...)
	}
	return dst
}

func appendValue(dst []byte, value string) []byte {
	if value == "" {
		return dst
	}
	for i := range len(value) {
		if b := value[i]; b == '\r' || b == '\n' {
			return append(dst, httpsyntax.Trim(lineBreaks.Replace(value))...)
		}
	}
	return append(dst, httpsyntax.Trim(value)...)
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")
