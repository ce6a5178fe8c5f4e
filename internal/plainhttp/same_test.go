package plainhttp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scriptKey is the key of a script in the contexts of its requests.
type scriptKey struct{}

func withScript(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, scriptKey{}, c)
}

// seen returns everything of a request that a handler can see, except its context.
func seen(r *http.Request, body []byte, err error) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %d.%d host=%q length=%d close=%v from=%s te=%v trailer=%v tls=%v\nurl=%+v\n",
		r.Method, r.RequestURI, r.Proto, r.ProtoMajor, r.ProtoMinor, r.Host, r.ContentLength, r.Close, r.RemoteAddr,
		r.TransferEncoding, r.Trailer, r.TLS != nil, *r.URL)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%s: %q\n", name, r.Header[name])
	}
	fmt.Fprintf(&b, "body=%q %v", body, err)
	return b.String()
}

// mirror records what it sees, and behaves as the path says.
func mirror(w http.ResponseWriter, r *http.Request) {
	s := r.Context().Value(scriptKey{}).(*script)
	var body []byte
	var err error
	if r.URL.Path != "/unread" {
		body, err = io.ReadAll(r.Body)
	}
	s.seen = append(s.seen, seen(r, body, err))
	h := w.Header()
	h.Set("X-Method", r.Method)
	switch r.URL.Path {
	case "/nothing":
	case "/204":
		w.WriteHeader(http.StatusNoContent)
		_, err := io.WriteString(w, "not allowed")
		s.seen = append(s.seen, fmt.Sprint(err))
	case "/304":
		h.Set("Content-Type", "text/plain")
		h.Set("Content-Length", "5")
		w.WriteHeader(http.StatusNotModified)
	case "/close":
		h.Set("Connection", "close")
		io.WriteString(w, "last")
	case "/declared":
		h.Set("Content-Length", "5")
		h.Set("Content-Type", "text/plain")
		h.Set("Date", "today")
		w.WriteHeader(http.StatusTeapot)
		io.WriteString(w, "tea")
		_, err := io.WriteString(w, "pots")
		s.seen = append(s.seen, fmt.Sprint(err))
		io.WriteString(w, "po")
	case "/short":
		h.Set("Content-Length", "5")
		io.WriteString(w, "ab")
	case "/large":
		h.Set("Content-Length", strconv.Itoa(3*minDirectWrite))
		for range 3 {
			w.Write(bytes.Repeat([]byte("x"), minDirectWrite))
		}
	case "/invalid":
		h["Bad Name"] = []string{"x"}
		h["lower-case"] = []string{"kept", "twice"}
		h["X-Empty"] = []string{""}
		h["X-None"] = nil
		io.WriteString(w, "<html>")
	case "/split":
		h["X-Split"] = []string{"a\r\nX-Injected: yes\r\n\r\n<html>", " padded\n"}
		io.WriteString(w, "x")
	case "/twice":
		w.WriteHeader(http.StatusAccepted)
		h.Set("X-Late", "yes")
		w.WriteHeader(http.StatusOK)
		io.WriteString(w, "accepted")
	case "/status":
		w.WriteHeader(999)
	case "/badstatus":
		w.WriteHeader(1)
	case "/panic":
		io.WriteString(w, "never sent")
		panic("on purpose")
	case "/abort":
		panic(http.ErrAbortHandler)
	default:
		io.WriteString(w, "hello")
	}
}

// reply is a response as sent, in a comparable order.
type reply struct {
	status  string
	headers []string
	body    string
}

// replies parses what a server has sent.
func replies(t testing.TB, sent []byte) (all []reply) {
	t.Helper()
	for len(sent) > 0 {
		start, rest, ok := bytes.Cut(sent, crlfcrlf)
		if !ok {
			t.Fatalf("response head without an end in %q", sent)
		}
		lines := strings.Split(string(start), "\r\n")
		r := reply{status: lines[0], headers: lines[1:]}
		length, bodyless := len(rest), strings.Contains(r.status, " 204 ") || strings.Contains(r.status, " 304 ") || strings.Contains(r.status, " 1")
		for i, line := range r.headers {
			name, value, _ := strings.Cut(line, ": ")
			switch name {
			case "Date":
				if value != "today" {
					r.headers[i] = "Date"
				}
			case "Content-Length":
				n, err := strconv.Atoi(value)
				if err != nil {
					t.Fatal(err)
				}
				length = min(length, n)
			case "X-Method":
				bodyless = bodyless || value == "HEAD"
			}
		}
		slices.Sort(r.headers)
		if length == len(rest) {
			// The last one: net/http closes the connection after a body that is too short,
			// and does not always announce that.
			r.headers = slices.DeleteFunc(r.headers, func(line string) bool { return line == "Connection: close" })
		}
		if bodyless {
			length = 0
		}
		r.body, sent = string(rest[:length]), rest[length:]
		all = append(all, r)
	}
	return all
}

// both is our server and one of net/http.
type both struct {
	direct, plain pipes
	stop          func()
}

func newBoth() *both {
	odd := func() *http.Server {
		return &http.Server{Handler: http.HandlerFunc(mirror), ConnContext: withScript, ErrorLog: log.New(io.Discard, "", 0)}
	}
	b := &both{direct: newPipes()}
	server, ended := odd(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(b.direct) // until it is closed
	}()
	_, plain, stop := serving(odd())
	b.plain = plain
	b.stop = func() {
		stop()
		_ = server.Close()
		<-ended
	}
	return b
}

// ask sends the pieces and records what happens.
func ask(l pipes, pieces []string) *script {
	s := newScript(slices.Clone(pieces)...)
	if err := l.Offer(context.Background(), s); err != nil {
		panic(err) // the server has ended
	}
	<-s.closed
	return s
}

// compare checks that handlers see the same and clients get the same on both servers.
func (b *both) compare(t testing.TB, pieces ...string) {
	t.Helper()
	want, got := ask(b.direct, pieces), ask(b.plain, pieces)
	if !slices.Equal(got.seen, want.seen) {
		t.Errorf("%q: the handler saw\n%s\nwant, as with net/http,\n%s", pieces, strings.Join(got.seen, "\n\n"), strings.Join(want.seen, "\n\n"))
	}
	if got, want := fmt.Sprintf("%+q", replies(t, got.sent)), fmt.Sprintf("%+q", replies(t, want.sent)); got != want {
		t.Errorf("%q: got the response\n%s\nwant, as from net/http,\n%s", pieces, got, want)
	}
}

const (
	host = "Host: a.b:1\r\n"
	get  = "GET / HTTP/1.1\r\n" + host + "\r\n"
	put  = "PUT /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc"
	head = "HEAD /a HTTP/1.1\r\n" + host + "\r\n"
)

// ordinary are ordinary requests.
var ordinary = []string{
	get, put, head,
	"GET /a/b?c=d&e=%2F;f#g HTTP/1.1\r\n" + host + "Connection: Keep-Alive\r\n\r\n",
	"GET //c.d/a HTTP/1.1\r\n" + host + "\r\n",
	"GET /? HTTP/1.1\r\n" + host + "\r\n",
	"GET /a?? HTTP/1.1\r\n" + host + "\r\n",
	"GET /%41%2f+$&=@:;,!'()* HTTP/1.1\r\n" + host + "\r\n",
	"OPTIONS /a HTTP/1.1\r\n" + host + "Origin: x\r\n\r\n",
	"HEAD /declared HTTP/1.1\r\n" + host + "\r\n",
	"HEAD /nothing HTTP/1.1\r\n" + host + "\r\n",
	"HEAD /large HTTP/1.1\r\n" + host + "\r\n",
	"GET /nothing HTTP/1.1\r\n" + host + "\r\n",
	"GET /204 HTTP/1.1\r\n" + host + "\r\n",
	"GET /304 HTTP/1.1\r\n" + host + "\r\n",
	"GET /declared HTTP/1.1\r\n" + host + "\r\n",
	"GET /large HTTP/1.1\r\n" + host + "\r\n",
	"GET /invalid HTTP/1.1\r\n" + host + "\r\n",
	"GET /split HTTP/1.1\r\n" + host + "\r\n",
	"GET /twice HTTP/1.1\r\n" + host + "\r\n",
	"GET /status HTTP/1.1\r\n" + host + "\r\n",
	"GET /a HTTP/1.1\r\n" + host + "x-ms-date:\t now \t\r\nX-MS-Meta-b_c: 1\r\nx-ms-meta-B_C: 2\r\nEmpty:\r\nA: 1\r\nA: 2\r\n\r\n",
	"GET /a HTTP/1.1\r\n" + host + "x-" + strings.Repeat("long-", 20) + "name: v\r\n!#$%&'*+-.^_`|~9: v\r\n\r\n",
	"GET /a HTTP/1.1\r\n" + host + "A: " + strings.Repeat("a", 10_000) + "\r\n\r\n",
	"GET /a HTTP/1.1\r\n" + host + strings.Repeat("A: b\r\nB: c\r\n", 400) + "\r\n",
	"PUT /unread HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc",
	"PUT /unread HTTP/1.1\r\n" + host + "Content-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000),
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 0000003\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 30000\r\n\r\n" + strings.Repeat("x", 30_000),
	"DELETE /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc",
	"GET /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\n\r\nabc",
}

// last are ordinary requests that are incomplete, or after which the connection is closed.
var last = []string{
	"GET /close HTTP/1.1\r\n" + host + "\r\n",
	"GET /short HTTP/1.1\r\n" + host + "\r\n",
	"GET /panic HTTP/1.1\r\n" + host + "\r\n",
	"GET /abort HTTP/1.1\r\n" + host + "\r\n",
	"GET /badstatus HTTP/1.1\r\n" + host + "\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nabc",
	"POST /unread HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nabc",
	"G", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost: a\r\nB", "\r\n", "",
}

// strange are other requests, including smuggling attempts.
var strange = []string{
	"GET / HTTP/1.0\r\n" + host + "\r\n",
	"GET / HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.2\r\n" + host + "\r\n",
	"GET / HTTP/2.0\r\n" + host + "\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n",
	"GET http://c.d/a HTTP/1.1\r\n" + host + "\r\n",
	"OPTIONS * HTTP/1.1\r\n" + host + "\r\n",
	"CONNECT c.d:1 HTTP/1.1\r\n" + host + "\r\n",
	"PATCH /a HTTP/1.1\r\n" + host + "\r\n",
	"get / HTTP/1.1\r\n" + host + "\r\n",
	"GET  / HTTP/1.1\r\n" + host + "\r\n",
	"GET / HTTP/1.1 \r\n" + host + "\r\n",
	"GET /a b HTTP/1.1\r\n" + host + "\r\n",
	"GET /\x80 HTTP/1.1\r\n" + host + "\r\n",
	"GET /%zz HTTP/1.1\r\n" + host + "\r\n",

	"GET ?a HTTP/1.1\r\n" + host + "\r\n",
	"GET a HTTP/1.1\r\n" + host + "\r\n",
	"GET / HTTP/1.1\n" + host + "\r\n",
	"GET / HTTP/1.1\nHost: a\n\n",
	"GET / HTTP/1.1\r\nHost: a\nB: c\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\n\n",
	"GET / HTTP/1.1\r\nHost: a\rB: c\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A : b\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + " A: b\r\n\r\n",
	"GET / HTTP/1.1\r\n A: b\r\n" + host + "\r\n",
	"GET / HTTP/1.1\r\n" + host + "A: b\r\n c\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + ": b\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A: \x00\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A: \x7f\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A: \xe4\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "\xe4: b\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "Connection: keep-alive, close\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "Pragma: no-cache\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "A: " + strings.Repeat("a", 20_000) + "\r\n\r\n",
	"GET / HTTP/1.1\r\n" + host + "Content-Length: 1\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Expect: a miracle\r\nContent-Length: 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3, 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: -3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 0x3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length:\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 99999999999999999999\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length : 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTrailer: T\r\n\r\n3\r\nabc\r\n0\r\nT: u\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding:\tchunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"POST /a HTTP/1.1\r\n" + host + "transfer-encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
	"POST /a HTTP/1.1\r\n" + host + "Transfer\x00Encoding: chunked\r\n\r\n0\r\n\r\n",
}

// TestSameAsNetHTTP sends each request alone, in pieces, after ordinary ones, and before one.
func TestSameAsNetHTTP(t *testing.T) {
	b := newBoth()
	defer b.stop()
	for _, text := range slices.Concat(ordinary, last, strange) {
		b.compare(t, text)
		b.compare(t, text[:len(text)/2], text[len(text)/2:])
		b.compare(t, text+get)
		b.compare(t, get+text)
		b.compare(t, get, text)
		b.compare(t, put+text, get)
		b.compare(t, "POST /a HTTP/1.1\r\n"+host+"\r\n\r\n"+text)
		b.compare(t, "POST /a HTTP/1.1\r\n"+host+"\r\n", "\r", "\n"+text)
		if len(text) < 200 {
			b.compare(t, strings.Split(head+text+get, "")...)
		}
	}
}

// TestOnlyOtherRequestsAreHandedOver: ordinary requests are served here, others by net/http. The
// responses alone would not show the difference.
func TestOnlyOtherRequestsAreHandedOver(t *testing.T) {
	overs := make(chan struct{}, 1)
	_, l, stop := serving(&http.Server{
		Handler:     http.HandlerFunc(mirror),
		ConnContext: withScript,
		ErrorLog:    log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				overs <- struct{}{}
			}
		},
	})
	defer stop()
	over := func(pieces ...string) bool {
		ask(l, pieces)
		select {
		case <-overs:
			return true
		default:
			return false
		}
	}
	for _, text := range ordinary {
		if over(text, text, text+text) {
			t.Errorf("%q is handed over to net/http, want it served here", text)
		}
	}
	for _, text := range strange {
		if !over(get, text) && !strings.Contains(text, "Content-Length: 1\r") { // which is plain without an end
			t.Errorf("%q is served here, want it handed over to net/http", text)
		}
	}
}

// FuzzSameAsNetHTTP sends arbitrary bytes in two pieces.
func FuzzSameAsNetHTTP(f *testing.F) {
	for _, text := range slices.Concat(ordinary, last, strange) {
		f.Add([]byte(text+get), 0)
		f.Add([]byte(put+text), len(text)/2)
	}
	b := newBoth()
	f.Cleanup(b.stop)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		text = text[:min(len(text), 32<<10)]
		cut = min(max(cut, 0), len(text))
		b.compare(t, string(text[:cut]), string(text[cut:]))
	})
}
