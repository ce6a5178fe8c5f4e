package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

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
