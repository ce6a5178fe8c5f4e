package plainhttp

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// direct is the size from which on a write is not worth a copy.
const minDirectWrite = 8 << 10

// answer is the [http.ResponseWriter] of a connection.
type response struct {
	conn   *conn
	header http.Header

	status   int   // 0 until it is known
	declared int64 // the Content-Length that the handler has set, or -1
	written  int64 // of the body

	headEnd      int  // where in the connection's out the headers end that the handler has set
	headComplete bool // the head is whole, in out or sent

	isHead   bool // the request was a HEAD: the body is not sent
	bodyless bool // the status has no body
	closing  bool // the connection is closed after it
	hasDate  bool
	hasType  bool // or needs none
}

// begin makes it the answer to the next request.
func (a *response) reset(method string) {
	*a = response{conn: a.conn, header: a.header, declared: -1, isHead: method == http.MethodHead}
}

// clear forgets the headers.
func (a *response) clear() {
	if len(a.header) > maxKeptHeaders {
		a.header = make(http.Header)
		return
	}
	clear(a.header)
}

// Header returns the headers that WriteHeader, or the first Write, will send.
func (a *response) Header() http.Header { return a.header }

// WriteHeader takes the headers as they are now. Only the first call counts. Answers of
// 1xx are not sent.
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

// takes notes what a header means, and returns whether it is sent as it is.
func (a *response) interpret(name string, values []string) bool {
	switch name {
	case "Date":
		a.hasDate = len(values) > 0
	case "Content-Type":
		a.hasType = true
		return a.status != http.StatusNotModified
	case "Content-Encoding":
		a.hasType = a.hasType || len(values) > 0 && values[0] != "" // what is encoded is not looked at
	case "Content-Length":
		if a.bodyless || len(values) == 0 {
			return false
		}
		n, err := strconv.ParseUint(strings.Trim(values[0], " \t"), 10, 63)
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
		return false // completeHead says so, and nothing else needs to be said
	case "Transfer-Encoding", "Trailer":
		return false
	}
	return !strings.HasPrefix(name, http.TrailerPrefix)
}

// Write is as with net/http: it fails where there is no body, and when it would be
// longer than its Content-Length.
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
	a.written += int64(len(p)) // also what is refused: such a handler has miscounted
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

// completeHead adds what the handler has not said, between its headers and the part of
// the body that is in out, and reads what is left of the request. The body, or as much
// as there is, tells its type.
func (a *response) completeHead(body []byte) {
	if !a.conn.body.drain() {
		a.closing = true
	}
	a.headComplete = true
	if body == nil {
		body = a.conn.out[a.headEnd:] // which draining may have moved
	}
	var room [256]byte
	more := room[:0]
	if !a.bodyless && !a.hasType && len(body) > 0 {
		more = append(append(append(more, "Content-Type: "...), http.DetectContentType(body)...), "\r\n"...)
	}
	// What a HEAD would have brought is not known when its handler has written nothing.
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

// finish makes the answer whole, and returns whether another may follow.
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
	// Who waits for the rest of a body that is too short shall learn that there is none.
	miscounted := !a.isHead && !a.bodyless && a.declared >= 0 && a.written != a.declared
	return !a.closing && !miscounted
}

// appendStatus appends a status line.
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

// appendHeader appends a line for each value of a header. Line breaks become spaces, and
// what is no name is left out, as in net/http.
func appendHeader(dst []byte, name string, values []string) []byte {
	for i := range len(name) {
		if tokens[name[i]] == 0 {
			return dst
		}
	}
	if name == "" {
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
			return append(dst, strings.Trim(lineBreaks.Replace(value), " \t")...)
		}
	}
	return append(dst, trim(value)...)
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")
