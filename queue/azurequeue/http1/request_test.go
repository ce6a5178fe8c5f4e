package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"
)

// newRequest returns a request as a client passes it.
func newRequest(t testing.TB, method, address, body string, header ...string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, address, from)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1]) // without changing its case, like the SDK
	}
	return r
}

// A server reads the request that was passed.
func TestRequestsOnTheWire(t *testing.T) {
	for _, r := range []*http.Request{
		newRequest(t, "GET", "http://host:10001/acct/q/messages?numofmessages=32&sig=a%2Fb%3D", "", "x-ms-version", "2026-04-06", "X-Ms-Date", "Sat, 01 Jan 2000 00:00:00 GMT"),
		newRequest(t, "GET", "http://host", ""),
		newRequest(t, "GET", "http://[::1]:80/?", ""),
		newRequest(t, "DELETE", "https://host/q/messages/a%2Fb?popreceipt=r%2B", "", "Authorization", " SharedKey a:b= "),
		newRequest(t, "POST", "http://host/q/messages", "<QueueMessage/>", "Content-Type", "application/xml", "Content-Length", "99", "Host", "other"),
		newRequest(t, "PUT", "http://host/q", "", "x-ms-meta-a", "1", "x-ms-meta-b", "\u00e9"),
		newRequest(t, "PUT", "http://host/q", strings.Repeat("x", 200_000), "Twice", "a", "Twice", "b", "User-Agent", ""),
	} {
		var sent []byte
		if r.Body != nil {
			sent, _ = io.ReadAll(r.Body)
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
		wire, usual, err := appendRequest([]byte("kept"), r)
		if !usual || err != nil {
			t.Errorf("%s %v: got usual %v, %v; want true", r.Method, r.URL, usual, err)
			continue
		}
		in := bufio.NewReader(bytes.NewReader(bytes.TrimPrefix(wire, []byte("kept"))))
		got, err := http.ReadRequest(in)
		if err != nil {
			t.Errorf("%s %v: got the error %v, want none", r.Method, r.URL, err)
			continue
		}
		body, err := io.ReadAll(got.Body)
		if err != nil || !bytes.Equal(body, sent) || got.ContentLength != int64(len(sent)) || in.Buffered() != 0 {
			t.Errorf("%s %v: got a body of %d bytes, length %d, %v; want %d bytes", r.Method, r.URL, len(body), got.ContentLength, err, len(sent))
		}
		if got.Method != r.Method || got.RequestURI != r.URL.RequestURI() || got.Host != r.URL.Host {
			t.Errorf("%s %v: got %s %s on %s, want the same", r.Method, r.URL, got.Method, got.RequestURI, got.Host)
		}
		for name, values := range r.Header {
			if name == "Host" || name == "Content-Length" || name == "User-Agent" {
				continue
			}
			if have := got.Header.Values(name); strings.Join(have, "|") != strings.TrimSpace(strings.Join(values, "|")) {
				t.Errorf("%s %v: header %s: got %q, want %q", r.Method, r.URL, name, have, values)
			}
		}
	}
}

// unusual returns requests that must go to the fallback.
func unusual(t testing.TB) map[string]*http.Request {
	all := map[string]*http.Request{
		"method":            newRequest(t, "PATCH", "http://host/", ""),
		"HEAD":              newRequest(t, "HEAD", "http://host/", ""),
		"scheme":            newRequest(t, "GET", "ftp://host/", ""),
		"user":              newRequest(t, "GET", "http://user:password@host/", ""),
		"international":     newRequest(t, "GET", "http://h\u00f6st/", ""),
		"zone":              newRequest(t, "GET", "http://[fe80::1%25eth0]/", ""),
		"Expect":            newRequest(t, "PUT", "http://host/", "x", "Expect", "100-continue"),
		"expect":            newRequest(t, "PUT", "http://host/", "x", "expect", "100-continue"),
		"Upgrade":           newRequest(t, "GET", "http://host/", "", "Upgrade", "websocket"),
		"Connection":        newRequest(t, "GET", "http://host/", "", "connection", "close"),
		"Transfer-Encoding": newRequest(t, "PUT", "http://host/", "x", "Transfer-Encoding", "gzip"),
		"Proxy":             newRequest(t, "GET", "http://host/", "", "Proxy-Authorization", "x"),
		"header's name":     newRequest(t, "GET", "http://host/", "", "a b", "x"),
		"injected header":   newRequest(t, "GET", "http://host/", "", "a", "x\r\nb: c"),
		"large":             newRequest(t, "PUT", "http://host/", strings.Repeat("x", maxRequest+1)),
	}
	change := func(name string, do func(*http.Request)) {
		all[name] = newRequest(t, "PUT", "http://host/", "x")
		do(all[name])
	}
	change("close", func(r *http.Request) { r.Close = true })
	change("opaque", func(r *http.Request) { r.URL = &url.URL{Scheme: "http", Host: "host", Opaque: "//host/x"} })
	change("query", func(r *http.Request) { r.URL.RawQuery = "a b" })
	change("injected query", func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1\r\nb: c" })
	change("host", func(r *http.Request) { r.Host = "a\r\nb: c" })
	change("trailer", func(r *http.Request) { r.Trailer = http.Header{"A": nil} })
	change("chunked", func(r *http.Request) { r.TransferEncoding = []string{"chunked"} })
	change("unknown length", func(r *http.Request) { r.ContentLength = -1 })
	change("length left out", func(r *http.Request) { r.ContentLength = 0 })
	return all
}

type transporter func(*http.Request) (*http.Response, error)

func (f transporter) Do(r *http.Request) (*http.Response, error) { return f(r) }

func TestUnusualRequestsGoToTheFallback(t *testing.T) {
	for name, r := range unusual(t) {
		sent := r
		body := r.Body
		got := false
		fallback := must(New(&Options{Fallback: transporter(func(r *http.Request) (*http.Response, error) {
			got = true
			if r.Body != nil && name != "large" {
				if text, err := io.ReadAll(r.Body); err != nil || string(text) != "x" {
					t.Errorf("%s: body in the fallback: got %q, %v; want x", name, text, err)
				}
			}
			if name == "length left out" && r.ContentLength != -1 {
				t.Errorf("%s: ContentLength in the fallback: got %d, want -1", name, r.ContentLength)
			}
			return nil, errors.New("fallback called")
		})}))
		if _, err := fetch(t, fallback, r); !got || err == nil {
			t.Errorf("%s: got %v, fallback called %v; want its error", name, err, got)
		}
		if sent.Body != body {
			t.Errorf("%s: body of the caller's request: got another, want it unchanged", name)
		}
	}
	proxied := must(New(&Options{
		Proxy:    func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy:3128") },
		Fallback: transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("fallback called") }),
	}))
	if _, err := fetch(t, proxied, newRequest(t, "GET", "http://host/", "")); err == nil || err.Error() != "fallback called" {
		t.Errorf("through a proxy: got %v, want the fallback's error", err)
	}
}

// A request whose body cannot be read or has another length than announced is not sent.
func TestBadBodySendsNothing(t *testing.T) {
	dialled := must(New(&Options{DialContext: nil, Fallback: transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("fallback") })}))
	for name, c := range map[string]struct {
		length int64
		body   io.Reader
	}{
		"short":      {5, strings.NewReader("1234")},
		"long":       {5, strings.NewReader("123456")},
		"broken":     {5, iotest.ErrReader(errors.New("broken"))},
		"of unknown": {0, iotest.ErrReader(errors.New("broken"))},
	} {
		r := newRequest(t, "PUT", "http://host.invalid/", "")
		closed := 0
		r.ContentLength = c.length
		r.Body = struct {
			io.Reader
			io.Closer
		}{c.body, closing(func() { closed++ })}
		if _, err := fetch(t, dialled, r); err == nil || !strings.Contains(err.Error(), "body") || closed != 1 {
			t.Errorf("%s: got %v, body closed %d times; want an error about the body, closed once", name, err, closed)
		}
	}
}

type closing func()

func (c closing) Close() error { c(); return nil }
