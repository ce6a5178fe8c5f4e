package emulator

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// errorLog collects the error log of [http.Server], which includes panics.
type errorLog struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

func (c *errorLog) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *errorLog) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.Contains(c.text.String(), "panic") {
		t.Error(c.text.String())
	}
}

var patient = timeouts{time.Minute, time.Minute, time.Minute, time.Minute}

// startEndpoint starts an endpoint with the queue "orders" and these timeouts. After the
// test fails if it has logged a panic.
func startEndpoint(t *testing.T, wait timeouts) *Endpoint {
	t.Helper()
	s := must(New(nil, nil))
	createOrders(t, s)
	log := new(errorLog)
	e, err := s.listen("127.0.0.1:0", nil, wait, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		log.check(t)
	})
	return e
}

func dial(t *testing.T, e *Endpoint) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", e.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, bufio.NewReader(conn)
}

// raw returns a signed request as sent. headers are additional header lines, each with its CRLF.
func raw(method, path, body, proto, headers string) string {
	r := signed(method, path, body)
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s %s\r\nHost: 127.0.0.1\r\n%s", method, r.URL.RequestURI(), proto, headers)
	r.Header.Write(&text)
	if body != "" {
		fmt.Fprintf(&text, "Content-Length: %d\r\n", len(body))
	}
	return text.String() + "\r\n" + body
}

// status reads a whole response and returns its status.
func status(t *testing.T, in *bufio.Reader, method string) int {
	t.Helper()
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response.StatusCode
}

// TestUnusualRequests sends requests that no client of the service sends, but others may.
func TestUnusualRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("sends thousands of requests")
	}
	e := startEndpoint(t, patient)
	const http11 = "HTTP/1.1"
	put := wrap("x")
	absolute := strings.Replace(raw("GET", "/orders?comp=metadata", "", http11, ""), "GET /", "GET http://127.0.0.1/", 1)
	for name, c := range map[string]struct {
		method, text string
		want         []int
	}{
		"HTTP/1.0":               {"GET", raw("GET", "/orders?comp=metadata", "", "HTTP/1.0", ""), []int{200}},
		"HEAD":                   {"HEAD", raw("HEAD", "/orders?comp=metadata", "", http11, ""), []int{200}},
		"absolute form":          {"GET", absolute, []int{200}},
		"pipelined":              {"", strings.Repeat(raw("GET", "/orders?comp=metadata", "", http11, ""), 3), []int{200, 200, 200}},
		"pipelined with a body":  {"", raw("POST", "/orders/messages", put, http11, "") + raw("GET", "/orders/messages", "", http11, ""), []int{201, 200}},
		"continue":               {"POST", raw("POST", "/orders/messages", put, http11, "Expect: 100-continue\r\n"), []int{100, 201}},
		"other expectation":      {"POST", raw("POST", "/orders/messages", put, http11, "Expect: a miracle\r\n"), []int{417}},
		"long URL":               {"GET", raw("GET", "/"+strings.Repeat("a", 60_000)+"?comp=metadata", "", http11, ""), []int{400}},
		"longer URL":             {"GET", "GET /" + strings.Repeat("a", 2*maxHeader) + " HTTP/1.1\r\nHost: x\r\n\r\n", []int{431}},
		"large headers":          {"GET", "GET / HTTP/1.1\r\nHost: x\r\nA: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n", []int{431}},
		"many headers":           {"GET", "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("a: b\r\n", 2*maxHeader/6) + "\r\n", []int{431}},
		"asterisk":               {"OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", []int{200}},
		"CONNECT":                {"CONNECT", "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", []int{403}},
		"CONNECT to us":          {"CONNECT", "CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n", []int{400}},
		"no host":                {"GET", "GET / HTTP/1.1\r\n\r\n", []int{400}},
		"two hosts":              {"GET", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", []int{400}},
		"two lengths":            {"POST", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", []int{400}},
		"negative length":        {"POST", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", []int{400}},
		"other coding":           {"POST", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", []int{501}},
		"HTTP/2":                 {"PRI", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{403}}, // it names no host
		"TLS":                    {"GET", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", []int{400}},
		"NUL in a header":        {"GET", "GET / HTTP/1.1\r\nHost: a\r\nB: \x00\r\n\r\n", []int{400}},
		"bad escape":             {"GET", "GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", []int{400}},
		"body that is too large": {"POST", raw("POST", "/orders/messages", strings.Repeat("a", maxBody+1), http11, ""), []int{413}},
		"chunks":                 {"POST", raw("POST", "/orders/messages", "", http11, "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n", []int{411}},
	} {
		t.Run(name, func(t *testing.T) {
			conn, in := dial(t, e)
			var writing sync.WaitGroup
			defer writing.Wait()
			defer conn.Close()
			writing.Go(func() { io.WriteString(conn, c.text) }) // the server need not read all of it
			for _, want := range c.want {
				if got := status(t, in, c.method); got != want {
					t.Errorf("status %d, want %d", got, want)
				}
			}
		})
	}
}

// writeForever repeats a write until the connection is closed.
func writeForever(t *testing.T, conn net.Conn, what string) {
	t.Helper()
	what = strings.Repeat(what, 1+4096/len(what))
	for {
		if _, err := io.WriteString(conn, what); err != nil {
			return
		}
	}
}

// TestEndlessBodiesAreCutOff: a connection is closed if a client sends chunks, or a body where
// there is none, without end.
func TestEndlessBodiesAreCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("sends for a second")
	}
	t.Parallel()
	e := startEndpoint(t, patient)
	for name, head := range map[string]string{
		"put":     raw("POST", "/orders/messages", "", "HTTP/1.1", "Transfer-Encoding: chunked\r\n"),
		"get":     raw("GET", "/orders/messages", "", "HTTP/1.1", "Transfer-Encoding: chunked\r\n"),
		"nobody":  "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
		"headers": "GET / HTTP/1.1\r\nHost: x\r\nA: ",
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := dial(t, e)
			io.WriteString(conn, head)
			writeForever(t, conn, "1\r\na\r\n")
		})
	}
}

// TestSlowClientsAreCutOff: the server closes the connection of a slow client, wherever it is slow.
func TestSlowClientsAreCutOff(t *testing.T) {
	const soon = 20 * time.Millisecond
	put := raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", "")
	for name, c := range map[string]struct {
		wait   timeouts
		sends  string
		status int // 0 for no response
	}{
		"nothing":         {timeouts{soon, time.Minute, time.Minute, time.Minute}, "", 0},
		"half a line":     {timeouts{soon, time.Minute, time.Minute, time.Minute}, "GET /devst", 0},
		"half the header": {timeouts{soon, time.Minute, time.Minute, time.Minute}, "GET / HTTP/1.1\r\nHost: x\r\nA: ", 0},
		"half a body":     {timeouts{time.Minute, soon, time.Minute, time.Minute}, put[:len(put)-5], 500}, // timed out
		"half a chunk":    {timeouts{time.Minute, soon, time.Minute, time.Minute}, "POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 400},
		"no next request": {timeouts{time.Minute, time.Minute, time.Minute, soon}, raw("GET", "/orders?comp=metadata", "", "HTTP/1.1", ""), 200},
	} {
		t.Run(name, func(t *testing.T) {
			e := startEndpoint(t, c.wait)
			conn, in := dial(t, e)
			io.WriteString(conn, c.sends)
			text, err := io.ReadAll(in) // returns when the server has closed it
			if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
				t.Fatal(err)
			}
			if c.status != 0 && !strings.HasPrefix(string(text), fmt.Sprintf("HTTP/1.1 %d ", c.status)) {
				t.Errorf("response: got %q (%v), want status %d", text, err, c.status)
			}
		})
	}
}

// TestUnreadResponsesAreCutOff: the server closes the connection of a client that sends requests and reads no response.
func TestUnreadResponsesAreCutOff(t *testing.T) {
	wait := patient
	wait.response = 50 * time.Millisecond
	e := startEndpoint(t, wait)
	conn, _ := dial(t, e)
	writeForever(t, conn, raw("GET", "/orders/messages", "", "HTTP/1.1", ""))
}
