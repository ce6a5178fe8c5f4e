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

	"github.com/millrace/millrace/internal/httpsyntax"
)

// Limits of a response, in bytes. A list of 32 messages of 64 KiB with every byte escaped has
// 13 MiB; metadata has 8 KiB in up to 4,096 headers.
const (
	maxHead          = 256 << 10
	maxBody          = 64 << 20
	maxChunkLine     = 256
	maxInformational = 5 // 1xx responses before the final one
)

// errMalformed means that the server did not send an HTTP/1 response.
var errMalformed = errors.New("malformed response")

func malformed(what string) error { return fmt.Errorf("%w: %s", errMalformed, what) }

// readResponse reads a response and reports whether the connection can be reused.
func (c *conn) readResponse() (_ *http.Response, reusable bool, err error) {
	for range maxInformational {
		head, err := c.readHead()
		if err != nil {
			return nil, false, err
		}
		resp, err := parseHead(head)
		if err != nil {
			return nil, false, err
		}
		if resp.StatusCode == http.StatusSwitchingProtocols {
			return nil, false, malformed("unexpected protocol switch")
		}
		if resp.StatusCode < 200 {
			continue
		}
		reusable, err := c.readBody(resp)
		if err != nil {
			return nil, false, toUnexpectedEOF(err)
		}
		return resp, reusable, nil
	}
	return nil, false, malformed("too many informational responses")
}

// toUnexpectedEOF turns an io.EOF within a response into io.ErrUnexpectedEOF.
func toUnexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readHead reads up to and including the empty line.
func (c *conn) readHead() (string, error) {
	for seen := 0; ; {
		have := c.in[c.r:c.w]
		if i := bytes.Index(have[seen:], []byte("\r\n\r\n")); i >= 0 {
			end := seen + i + 4
			c.r += end
			return string(have[:end]), nil
		}
		if len(have) >= maxHead {
			return "", malformed("header too large")
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

// parseHead parses a status line and headers. All strings are substrings of head.
func parseHead(head string) (*http.Response, error) {
	line, rest, _ := strings.Cut(head, "\r\n")
	const version = "HTTP/1.x "
	if len(line) < len(version)+3 || line[:7] != version[:7] || line[7] != '0' && line[7] != '1' || line[8] != ' ' ||
		len(line) > len(version)+3 && line[len(version)+3] != ' ' || !httpsyntax.IsValue(line) {
		return nil, malformed("invalid status line")
	}
	status, ok := parseNumber(line[len(version):len(version)+3], 10, 3)
	if !ok || status < 100 {
		return nil, malformed("invalid status code")
	}
	lines := strings.Count(rest, "\r\n") - 1
	resp := &http.Response{
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
		name, value, ok := httpsyntax.CutName(line)
		if !ok { // a continuation line is refused too
			return nil, malformed("invalid header line")
		}
		if value = httpsyntax.Trim(value); !httpsyntax.IsValue(value) {
			return nil, malformed("control character in a header")
		}
		if known := resp.Header[name]; known != nil {
			resp.Header[name] = append(known, value)
			continue
		}
		values[i] = value
		resp.Header[name] = values[i : i+1 : i+1]
	}
	return resp, nil
}

// parseNumber parses up to most digits, without a sign.
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

// readLine reads a line of at most that many bytes, including the line end, and returns it
// without the line end.
func (c *conn) readLine(most int) (string, error) {
	for {
		have := c.in[c.r:c.w]
		if i := bytes.IndexByte(have, '\n'); i >= 0 && i < most {
			if i == 0 || have[i-1] != '\r' {
				return "", malformed("line feed without a carriage return")
			}
			c.r += i + 1
			return string(have[:i-1]), nil
		}
		if len(have) >= most {
			return "", malformed("line too long")
		}
		if err := c.fill(); err != nil {
			return "", err
		}
	}
}

// readBody reads the body of a response (RFC 9112, section 6.3) and reports whether the
// connection can be reused.
func (c *conn) readBody(a *http.Response) (again bool, err error) {
	again = a.ProtoMinor == 1 && !hasClose(a.Header["Connection"])
	a.Close = !again
	a.Body = http.NoBody
	coding, lengths := a.Header["Transfer-Encoding"], a.Header["Content-Length"]
	if a.StatusCode == http.StatusNoContent || a.StatusCode == http.StatusNotModified {
		if len(coding) > 0 || len(lengths) > 0 && lengths[0] != "0" {
			again, a.Close = false, true // the server may send a body that is not allowed
		}
		return again, nil
	}
	buffer := bodyBuffers.Get().(*[]byte)
	data := (*buffer)[:0]
	switch {
	case len(coding) > 0:
		// With both, two readers could disagree on where the response ends.
		if len(coding) != 1 || !equalNames(coding[0], "chunked") || len(lengths) > 0 || a.ProtoMinor == 0 {
			err = malformed("unsupported transfer encoding")
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

// hasClose reports whether a Connection header has the option close.
func hasClose(values []string) bool {
	for _, v := range values {
		for one := range strings.SplitSeq(v, ",") {
			if equalNames(httpsyntax.Trim(one), "close") {
				return true
			}
		}
	}
	return false
}

func contentLength(values []string) (int64, error) {
	n, ok := parseNumber(values[0], 10, 18)
	for _, v := range values[1:] {
		ok = ok && v == values[0]
	}
	switch {
	case !ok:
		return 0, malformed("invalid Content-Length")
	case n > maxBody:
		return 0, fmt.Errorf("response of %d bytes exceeds the limit of %d", n, maxBody)
	}
	return n, nil
}

// extend returns the buffer with n more bytes.
func extend(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		grown := make([]byte, len(b), max(len(b)+n, 2*cap(b)))
		copy(grown, b)
		b = grown
	}
	return b[:len(b)+n]
}

// readChunks reads a chunked body and skips its trailers (RFC 9112, section 7.1).
func (c *conn) readChunks(data []byte) ([]byte, error) {
	for {
		line, err := c.readLine(maxChunkLine)
		if err != nil {
			return data, err
		}
		size, extension, _ := strings.Cut(line, ";")
		n, ok := parseNumber(strings.TrimRight(size, " \t"), 16, 8)
		if !ok || !httpsyntax.IsValue(extension) {
			return data, malformed("invalid chunk size")
		}
		if n == 0 {
			return data, c.skipTrailers()
		}
		if int64(len(data))+n > maxBody {
			return data, fmt.Errorf("response exceeds the limit of %d bytes", maxBody)
		}
		from := len(data)
		data = extend(data, int(n))
		if err := c.readFull(data[from:]); err != nil {
			return data, err
		}
		if line, err := c.readLine(2); err != nil || line != "" {
			return data, errors.Join(malformed("chunk without a line end"), err)
		}
	}
}

func (c *conn) skipTrailers() error {
	for left := maxHead; left > 0; {
		line, err := c.readLine(left)
		if err != nil || line == "" {
			return err
		}
		if _, value, ok := httpsyntax.CutName(line); !ok || !httpsyntax.IsValue(value) {
			return malformed("invalid trailer")
		}
		left -= len(line) + 2
	}
	return malformed("trailers too large")
}

// readToEOF reads until the server closes the connection.
func (c *conn) readToEOF(data []byte) ([]byte, error) {
	for {
		data = append(data, c.in[c.r:c.w]...)
		c.r = c.w
		if len(data) > maxBody {
			return data, fmt.Errorf("response exceeds the limit of %d bytes", maxBody)
		}
		if err := c.fill(); errors.Is(err, io.EOF) {
			return data, nil
		} else if err != nil {
			return data, err
		}
	}
}

// bodyBuffers hold response bodies until they are closed.
var bodyBuffers = sync.Pool{New: func() any { return new([]byte) }}

// body is a response body that was read whole. Close returns its buffer to the pool.
type body struct {
	data   []byte  // unread part
	buffer *[]byte // nil once closed
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

// Close returns the buffer to the pool. Read has copied from it.
func (b *body) Close() error {
	if b.buffer != nil {
		putBuffer(&bodyBuffers, b.buffer)
		b.buffer, b.data = nil, nil
	}
	return nil
}
