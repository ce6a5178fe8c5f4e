package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// canned is a connection on which a response has arrived.
type canned struct {
	net.Conn // nil: any other call panics
	r        io.Reader
}

func (c canned) Read(p []byte) (int, error) { return c.r.Read(p) }

func cannedConn(text string, pieces bool) *conn {
	var r io.Reader = strings.NewReader(text)
	if pieces {
		r = iotest.OneByteReader(r)
	}
	return newConn(canned{r: r})
}

func TestValidResponses(t *testing.T) {
	for text, want := range map[string]struct {
		status int
		body   string
		reuse  bool // of the connection
	}{
		"HTTP/1.1 204 No Content\r\nx-ms-request-id: 1\r\n\r\n": {204, "", true},
		"HTTP/1.1 204\r\n\r\n":                                                    {204, "", true},
		"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n":                    {204, "", true},
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc":                         {200, "abc", true},
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\nabc":    {200, "abc", true},
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd":                        {200, "abc", false},
		"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 3\r\n\r\nabc": {200, "abc", false},
		"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc":                         {200, "abc", false},
		"HTTP/1.1 200 OK\r\n\r\nto the end":                                       {200, "to the end", false},
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\na: b\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n": {201, "", true},
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n":                      {200, "abc0123456789", true},
		"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n0\r\nTrailer: x\r\n\r\n":                                           {200, "", true},
		"HTTP/1.1 200 OK\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("0123456789", 1000):                                  {200, strings.Repeat("0123456789", 1000), true},
		"HTTP/1.1 200 OK\r\nLong: " + strings.Repeat("x", 20_000) + "\r\nContent-Length: 1\r\n\r\nx":                             {200, "x", true},
	} {
		for _, pieces := range []bool{false, true} {
			c := cannedConn(text, pieces)
			resp, again, err := c.readResponse()
			if err != nil {
				t.Errorf("%.80q: got the error %v, want none", text, err)
				continue
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != want.status || string(body) != want.body {
				t.Errorf("%.80q: got %d %.80q, %v; want %d %.80q", text, resp.StatusCode, body, err, want.status, want.body)
			}
			if again = again && (c.r == c.w || pieces); !pieces && again != want.reuse {
				t.Errorf("%.80q: connection is reusable: got %v, want %v", text, again, want.reuse)
			}
			if err := resp.Body.Close(); err != nil {
				t.Errorf("%.80q: Close: got the error %v, want none", text, err)
			}
			if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%.80q: Read of a closed body: got %d bytes, %v; want an error", text, n, err)
			}
		}
	}
}

func TestInvalidResponses(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for text, want := range map[string]error{
		"":                                  io.EOF,
		"HTTP/1.1 200 OK":                   io.ErrUnexpectedEOF,
		ok:                                  io.ErrUnexpectedEOF,
		ok + "Content-Length: 3\r\n\r\nab":  io.ErrUnexpectedEOF,
		ok + "Content-Length: 3\r\n\r\n":    io.ErrUnexpectedEOF,
		ok + "Content-Length: -1\r\n\r\n":   errMalformed,
		ok + "Content-Length: +1\r\n\r\nx":  errMalformed,
		ok + "Content-Length: 1_0\r\n\r\nx": errMalformed,
		ok + "Content-Length:\r\n\r\n":      errMalformed,
		ok + "Content-Length: 1, 1\r\n\r\n": errMalformed,
		ok + "Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx":                                       errMalformed,
		ok + "Content-Length: 99999999999999999999\r\n\r\n":                                           errMalformed,
		ok + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n":                       errMalformed,
		ok + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n":                                      errMalformed,
		"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n":                              errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\nx\r\n\r\n":                                            errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n":                                           errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n":                                errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n":                                 errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n":                                    errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFF\r\n":                                        errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("x", 999) + "\r\na\r\n0\r\n\r\n": errMalformed,
		ok + "Transfer-Encoding: chunked\r\n\r\n1\r\na":                                               io.ErrUnexpectedEOF,
		ok + "Transfer-Encoding: chunked\r\n\r\n0\r\n":                                                io.ErrUnexpectedEOF,
		ok + "Transfer-Encoding: chunked\r\n\r\n0\r\nno trailer\r\n\r\n":                              errMalformed,
		ok + " continued\r\n\r\n":                                                                     errMalformed,
		ok + "a: b\r\n\tcontinued\r\n\r\n":                                                            errMalformed,
		ok + "no colon\r\n\r\n":                                                                       errMalformed,
		ok + ": no name\r\n\r\n":                                                                      errMalformed,
		ok + "blank : x\r\n\r\n":                                                                      errMalformed,
		ok + "a: b\x00\r\n\r\n":                                                                       errMalformed,
		ok + "a: b\rc: d\r\n\r\n":                                                                     errMalformed,
		ok + "a: b\nc: d\r\n\r\n":                                                                     errMalformed,
		"HTTP/2.0 200 OK\r\n\r\n":                                                                     errMalformed,
		"HTTP/1.1 20 OK\r\n\r\n":                                                                      errMalformed,
		"HTTP/1.1 2000 OK\r\n\r\n":                                                                    errMalformed,
		"HTTP/1.1 099 OK\r\n\r\n":                                                                     errMalformed,
		"HTTP/1.1 +20 OK\r\n\r\n":                                                                     errMalformed,
		"SSH-2.0-OpenSSH\r\n\r\n":                                                                     errMalformed,
		"HTTP/1.1 101 Switching Protocols\r\n\r\n":                                                    errMalformed,
		strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9):                                            errMalformed,
		ok + "Long: " + strings.Repeat("x", 300<<10):                                                  errMalformed,
	} {
		for _, pieces := range []bool{false, true} {
			if resp, _, err := cannedConn(text, pieces).readResponse(); !errors.Is(err, want) {
				t.Errorf("%.80q: got %+v, %v; want the error %v", text, resp, err, want)
			}
		}
	}
	if _, _, err := cannedConn(fmt.Sprintf("%sContent-Length: %d\r\n\r\n", ok, maxBody+1), false).readResponse(); err == nil {
		t.Error("body over the limit: got no error, want one")
	}
}

// netHTTP reads a response with net/http, skipping informational ones, and returns how many bytes of
// the text it used.
func netHTTP(text string) (*http.Response, []byte, int, error) {
	source := strings.NewReader(text)
	in := bufio.NewReader(source)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return nil, nil, 0, err
		}
		if resp.StatusCode < 200 && resp.StatusCode != http.StatusSwitchingProtocols {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		return resp, body, len(text) - source.Len() - in.Buffered(), err
	}
}

// FuzzResponse checks that net/http accepts every response that readResponse accepts, as the same
// response, and stops at the same byte; and that it makes no difference in what pieces it arrives.
func FuzzResponse(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 204 No Content\r\nx-ms-request-id: 1\r\nDate: Sat, 01 Jan 2000 00:00:00 GMT\r\n\r\nHTTP/1.1 ",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive, close\r\n\r\nabc",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: x\r\n\r\nmore",
		"HTTP/1.0 404 Not Found\r\nA: b\r\na:  c \r\n\r\nto the end",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := cannedConn(text, false)
		resp, again, err := c.readResponse()
		c2 := cannedConn(text, true)
		resp2, again2, err2 := c2.readResponse()
		if (err == nil) != (err2 == nil) {
			t.Fatalf("%q: got the error %v, and byte by byte %v; want the same", text, err, err2)
		}
		if err != nil {
			return
		}
		body, _ := io.ReadAll(resp.Body)
		body2, _ := io.ReadAll(resp2.Body)
		if resp.StatusCode != resp2.StatusCode || !reflect.DeepEqual(resp.Header, resp2.Header) || !bytes.Equal(body, body2) || again != again2 {
			t.Fatalf("%q: got %+v %q, and byte by byte %+v %q; want the same", text, resp, body, resp2, body2)
		}
		want, wantBody, used, err := netHTTP(text)
		if err != nil {
			t.Fatalf("%q: got no error, want that of net/http: %v", text, err)
		}
		for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer", "Cache-Control", "Connection"} { // net/http edits them
			resp.Header.Del(name)
			want.Header.Del(name)
		}
		if resp.StatusCode != want.StatusCode || resp.ProtoMinor != want.ProtoMinor || !reflect.DeepEqual(resp.Header, want.Header) || !bytes.Equal(body, wantBody) {
			t.Fatalf("%q: got %+v %q, want as net/http %+v %q", text, resp, body, want, wantBody)
		}
		if again && want.Close {
			t.Fatalf("%q: got a reusable connection, want it closed as by net/http", text)
		}
		if again && len(text)-(c.w-c.r)-unread(c) != used {
			t.Fatalf("%q: got %d bytes unread, want as net/http, which used %d of %d", text, c.w-c.r+unread(c), used, len(text))
		}
	})
}

// unread returns how many bytes of a canned connection have not been read.
func unread(c *conn) int { return c.raw.(canned).r.(*strings.Reader).Len() }
