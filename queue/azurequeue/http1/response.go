package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// Bounds of an answer. A list of 32 messages of 64 KiB, every byte of them escaped,
// has 13 MiB; metadata has 8 KiB in up to 4,096 headers.
const (
	maxHead          = 256 << 10
	maxBody          = 64 << 20
	maxChunkLine     = 256
	maxInformational = 5 // answers of 1xx before the one
)

// errMalformed means that what came is no answer of HTTP/1.
var errMalformed = errors.New("malformed answer")

func malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// answer reads one answer. It tells whether the server lets the connection be used
// again.
func (c *conn) readResponse() (readResponse *http.Response, again bool, err error) {
	for range maxInformational {
		head, err := c.readHead()
		if err != nil {
			return nil, false, err
		}
		answer, err := parseHead(head)
		if err != nil {
			return nil, false, err
		}
		if answer.StatusCode == http.StatusSwitchingProtocols {
			return nil, false, malformed("another protocol, which nobody asked for")
		}
		if answer.StatusCode < 200 {
			continue
		}
		again, err := c.readBody(answer)
		if err != nil {
			return nil, false, toUnexpectedEOF(err)
		}
		return answer, again, nil
	}
	return nil, false, malformed("no end of informational answers")
}

// unfinished makes an end of the connection within an answer what it is.
func toUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// head reads up to the empty line, which is included.
func (c *conn) readHead() (string, error) {
	for seen := 0; ; {
		have := c.in[c.r:c.w]
		if i := bytes.Index(have[seen:], []byte("\r\n\r\n")); i >= 0 {
			end := seen + i + 4
			c.r += end
			return string(have[:end]), nil
		}
		if len(have) >= maxHead {
			return "", malformed("the head has no end")
		}
		seen = max(len(have)-3, 0)
		if err := c.fill(); err != nil {
			if len(have) > 0 {
				err = toUnexpectedEOF(err)
			}
			return "", err
		}
	}
}

// parseHead reads a status line and headers up to the empty line. All its strings
// are parts of the head.
func parseHead(head string) (*http.Response, error) {
	line, rest, _ := strings.Cut(head, "\r\n")
	const version = "HTTP/1.x "
	if len(line) < len(version)+3 || line[:7] != version[:7] || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > len(version)+3 && line[len(version)+3] != ' ' || !isValue(line) {
		return nil, malformed("no status line of HTTP/1")
	}
	status, ok := parseNumber(line[len(version):len(version)+3], 10, 3)
	if !ok || status < 100 {
		return nil, malformed("no status")
	}
	lines := strings.Count(rest, "\r\n") - 1
	answer := &http.Response{
		Status:     line[len(version):],
		StatusCode: int(status),
		Proto:      line[:len("HTTP/1.1")],
		ProtoMajor: 1,
		ProtoMinor: int(line[7] - '0'),
		Header:     make(http.Header, lines),
	}
	values := make([]string, lines) // one allocation for all headers
	for i := range lines {
		line, rest, _ = strings.Cut(rest, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		if !ok || !isToken(name) { // a line that continues another is refused, too
			return nil, malformed("no header")
		}
		if value = strings.Trim(value, " \t"); !isValue(value) {
			return nil, malformed("a control character in a header")
		}
		name = canonical(name)
		if known := answer.Header[name]; known != nil {
			answer.Header[name] = append(known, value)
			continue
		}
		values[i] = value
		answer.Header[name] = values[i : i+1 : i+1]
	}
	return answer, nil
}

// canonical returns the name of a header as http.Header has it, those that every
// answer of the service has without an allocation.
func canonical(name string) string {
	if known, ok := commonHeaders[name]; ok {
		return known
	}
	return http.CanonicalHeaderKey(name)
}

var commonHeaders = func() map[string]string {
	m := make(map[string]string)
	for _, name := range []string{
		"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Keep-Alive", "Server", "Transfer-Encoding",
		"X-Ms-Client-Request-Id", "X-Ms-Request-Id", "X-Ms-Version", "X-Ms-Popreceipt", "X-Ms-Time-Next-Visible", "X-Ms-Error-Code",
		"X-Ms-Approximate-Messages-Count",
	} {
		m[name], m[strings.ToLower(name)] = name, name
	}
	return m
}()

// body reads the body of an answer, by RFC 9112, section 6.3, and puts it into it. It
// tells whether the connection can be used again.
func (c *conn) readBody(a *http.Response) (again bool, err error) {
	again = a.ProtoMinor == 1 && !hasClose(a.Header["Connection"])
	a.Close = !again
	a.Body = http.NoBody
	coding, lengths := a.Header["Transfer-Encoding"], a.Header["Content-Length"]
	if a.StatusCode == http.StatusNoContent || a.StatusCode == http.StatusNotModified {
		if len(coding) > 0 || len(lengths) > 0 && lengths[0] != "0" {
			again, a.Close = false, true // it has no body, but its server may think so
		}
		return again, nil
	}
	buffer := bodyBuffers.Get().(*[]byte)
	data := (*buffer)[:0]
	switch {
	case len(coding) > 0:
		// Both would let two readers see two answers.
		if len(coding) != 1 || !equalNames(coding[0], "chunked") || len(lengths) > 0 || a.ProtoMinor == 0 {
			err = malformed("a transfer encoding other than chunked, or a length beside it")
			break
		}
		delete(a.Header, "Transfer-Encoding")
		a.TransferEncoding = []string{"chunked"}
		data, err = c.readChunks(data)
	case len(lengths) > 0:
		var length int64
		if length, err = contentLength(lengths); err != nil {
			break
		}
		data = extend(data, int(length))
		err = c.readFull(data)
	default:
		again, a.Close = false, true
		data, err = c.readToEOF(data)
	}
	*buffer = data
	if err != nil || len(data) == 0 {
		putBuffer(&bodyBuffers, buffer)
		return again, err
	}
	a.ContentLength = int64(len(data))
	a.Body = &body{data: data, buffer: buffer}
	return again, nil
}

// closes tells whether a Connection header ends the connection.
func hasClose(values []string) bool {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if equalNames(strings.Trim(one, " \t"), "close") {
				return true
			}
		}
	}
	return false
}

// contentLength is what all of them say.
func contentLength(values []string) (int64, error) {
	n, ok := parseNumber(values[0], 10, 18)
	for _, v := range values[1:] {
		ok = ok && v == values[0]
	}
	switch {
	case !ok:
		return 0, malformed("no length")
	case n > maxBody:
		return 0, fmt.Errorf("an answer of %d bytes, more than %d", n, maxBody)
	}
	return n, nil
}

// number reads digits alone, without a sign.
func parseNumber(text string, base, most int) (int64, bool) {
	if text == "" || len(text) > most {
		return 0, false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (base != 16 || (c|0x20) < 'a' || (c|0x20) > 'f') {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(text, base, 64)
	return n, err == nil
}

// room returns a buffer with n bytes more.
func extend(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		grown := make([]byte, len(b), max(len(b)+n, 2*cap(b)))
		copy(grown, b)
		b = grown
	}
	return b[:len(b)+n]
}

// chunks reads a body in chunks and skips its trailers, by RFC 9112, section 7.1.
func (c *conn) readChunks(data []byte) ([]byte, error) {
	for {
		line, err := c.readLine(maxChunkLine)
		if err != nil {
			return data, err
		}
		size, extension, _ := strings.Cut(line, ";")
		n, ok := parseNumber(strings.TrimRight(size, " \t"), 16, 8)
		if !ok || !isValue(extension) {
			return data, malformed("no chunk")
		}
		if n == 0 {
			return data, c.skipTrailers()
		}
		if int64(len(data))+n > maxBody {
			return data, fmt.Errorf("an answer of more than %d bytes", maxBody)
		}
		from := len(data)
		data = extend(data, int(n))
		if err := c.readFull(data[from:]); err != nil {
			return data, err
		}
		if line, err := c.readLine(2); err != nil || line != "" {
			return data, errors.Join(malformed("no end of a chunk"), err)
		}
	}
}

func (c *conn) skipTrailers() error {
	for left := maxHead; left > 0; {
		line, err := c.readLine(left)
		if err != nil || line == "" {
			return err
		}
		if name, value, ok := strings.Cut(line, ":"); !ok || !isToken(name) || !isValue(value) {
			return malformed("no trailer")
		}
		left -= len(line) + 2
	}
	return malformed("the trailers have no end")
}

// line reads a line of at most so many bytes, its end included, which is cut off.
func (c *conn) readLine(most int) (string, error) {
	for {
		have := c.in[c.r:c.w]
		if i := bytes.IndexByte(have, '\n'); i >= 0 && i < most {
			if i == 0 || have[i-1] != '\r' {
				return "", malformed("a line that ends without a carriage return")
			}
			c.r += i + 1
			return string(have[:i-1]), nil
		}
		if len(have) >= most {
			return "", malformed("a line that is too long")
		}
		if err := c.fill(); err != nil {
			return "", err
		}
	}
}

// toEnd reads until the server closes the connection.
func (c *conn) readToEOF(data []byte) ([]byte, error) {
	for {
		data = append(data, c.in[c.r:c.w]...)
		c.r = c.w
		if len(data) > maxBody {
			return data, fmt.Errorf("an answer of more than %d bytes", maxBody)
		}
		if err := c.fill(); errors.Is(err, io.EOF) {
			return data, nil
		} else if err != nil {
			return data, err
		}
	}
}

// bodies hold the bodies of answers until they are closed.
var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// body is a body that was read whole. Its buffer is another's once it is closed.
type body struct {
	data   []byte  // what is left
	buffer *[]byte // nil when closed
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if b.buffer == nil {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(b.data) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.data)
	b.data = b.data[n:]
	return n, nil
}

// Close gives the buffer back. What was read of it was copied.
func (b *body) Close() error {
	if b.buffer != nil {
		putBuffer(&bodyBuffers, b.buffer)
		b.buffer, b.data = nil, nil
	}
	return nil
}
