package emulator

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// RoundTrip handles a request in process, as an endpoint would. With the Server as its Transport
// an [http.Client] needs no network and works in a testing/synctest bubble. A request to https
// counts as TLS. The host in the request's URL matters only if it names an account.
//
// If the context ends before the response, RoundTrip fails with the context's cause;
// [Options].Delay says what has happened by then.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		defer func() { _ = r.Body.Close() }() // the contract of http.RoundTripper
	}
	if s.optionsErr != nil {
		return nil, s.optionsErr
	}
	ctx := r.Context()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	in, err := incoming(r)
	if err != nil {
		return nil, err
	}
	w := &response{header: make(http.Header, 8)}
	stream, broken := s.serve(w, in, direct)
	if stream != nil {
		w.status = http.StatusOK
		return w.streaming(r, stream), nil
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if broken != nil {
		return nil, broken
	}
	return w.outgoing(r), nil
}

// incoming converts a client's request to the one that a server receives.
func incoming(r *http.Request) (*http.Request, error) {
	if r.URL == nil {
		return nil, errors.New("emulator: request without URL")
	}
	address, err := url.ParseRequestURI(r.URL.RequestURI())
	if err != nil {
		return nil, errors.New("emulator: the address of the request cannot be sent over HTTP") // err contains the receipt
	}
	in := (&http.Request{
		Method:        r.Method,
		URL:           address,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, len(r.Header)),
		Body:          http.NoBody,
		ContentLength: r.ContentLength,
		Host:          r.Host,
		RequestURI:    r.URL.RequestURI(),
		RemoteAddr:    "in-process",
	}).WithContext(r.Context())
	if in.Method == "" {
		in.Method = http.MethodGet
	}
	if r.URL.Scheme == "https" {
		in.TLS = new(tls.ConnectionState) // marks the request as secure
	}
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	for name, values := range r.Header {
		name = http.CanonicalHeaderKey(name)
		for _, value := range values {
			if strings.ContainsAny(name+value, "\r\n\x00") {
				return nil, errors.New("emulator: a header of the request cannot be sent over HTTP")
			}
			in.Header[name] = append(in.Header[name], strings.Trim(value, " \t")) // as it arrives
		}
	}
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		in.ContentLength = 0
	case r.ContentLength == 0:
		in.ContentLength = -1 // a body of unknown length goes in chunks
		in.Body = r.Body
	default:
		in.Body = io.NopCloser(io.LimitReader(r.Body, r.ContentLength))
	}
	return in, nil
}

// response records what a handler writes.
type response struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(p []byte) (int, error) { return w.body.Write(p) }

// outgoing converts a server's response to the one that a client receives.
func (w *response) outgoing(r *http.Request) *http.Response {
	out := &http.Response{
		Status:        fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode:    w.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        make(http.Header, len(w.header)),
		Body:          http.NoBody,
		ContentLength: int64(w.body.Len()),
		Request:       r,
	}
	for name, values := range w.header {
		out.Header[http.CanonicalHeaderKey(name)] = slices.Clone(values)
	}
	if r.Method == http.MethodHead { // the length of what a GET would have brought
		out.ContentLength, _ = strconv.ParseInt(out.Header.Get("Content-Length"), 10, 64)
	}
	if w.body.Len() > 0 {
		out.Body = io.NopCloser(&w.body)
	}
	return out
}
