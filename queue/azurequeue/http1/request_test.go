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

// newRequest is what a client would hand over.
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
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1]) // as it is written, like the SDK
	}
	return r
}

// What is sent is what a server reads.
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
			t.Errorf("%s %v: %v, %v", r.Method, r.URL, usual, err)
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
			t.Errorf("%s %v: body of %d bytes, announced %d, %v", r.Method, r.URL, len(body), got.ContentLength, err)
		}
		if got.Method != r.Method || got.RequestURI != r.URL.RequestURI() || got.Host != r.URL.Host {
			t.Errorf("%s %v: %s %s on %s", r.Method, r.URL, got.Method, got.RequestURI, got.Host)
		}
		for name, values := range r.Header {
			if name == "Host" || name == "Content-Length" || name == "User-Agent" {
				continue
			}
			if have := got.Header.Values(name); strings.Join(have, "|") != strings.TrimSpace(strings.Join(values, "|")) {
				t.Errorf("%s %v: header %s is %q, want %q", r.Method, r.URL, name, have, values)
			}
		}
	}
}

// unusual are requests that the fallback must get.
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

func TestTheUnusualGoesToTheFallback(t *testing.T) {
	for name, r := range unusual(t) {
		sent := r
		body := r.Body
		got := false
		fallback := New(&Options{Fallback: transporter(func(r *http.Request) (*http.Response, error) {
			got = true
			if r.Body != nil && name != "large" {
				if text, err := io.ReadAll(r.Body); err != nil || string(text) != "x" {
					t.Errorf("%s: the fallback gets the body %q, %v", name, text, err)
				}
			}
			if name == "length left out" && r.ContentLength != -1 {
				t.Errorf("%s: the fallback gets a length of %d", name, r.ContentLength)
			}
			return nil, errors.New("that was it")
		})})
		if _, err := said(t, fallback, r); !got || err == nil {
			t.Errorf("%s: the fallback did not get it: %v", name, err)
		}
		if sent.Body != body {
			t.Errorf("%s: the caller's request was changed", name)
		}
	}
	proxied := New(&Options{
		Proxy:    func(*http.Request) (*url.URL, error) { return url.Parse("http://proxy:3128") },
		Fallback: transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("that was it") }),
	})
	if _, err := said(t, proxied, newRequest(t, "GET", "http://host/", "")); err == nil || err.Error() != "that was it" {
		t.Errorf("through a proxy: %v", err)
	}
}

// A body that cannot be read, or is not what was announced, sends nothing.
func TestBadBodySendsNothing(t *testing.T) {
	dialled := New(&Options{DialContext: nil, Fallback: transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("fallback") })})
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
		if _, err := said(t, dialled, r); err == nil || !strings.Contains(err.Error(), "body") || closed != 1 {
			t.Errorf("%s: %v, closed %d times", name, err, closed)
		}
	}
}

type closing func()

func (c closing) Close() error { c(); return nil }
