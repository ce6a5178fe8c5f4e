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

// maxRequest is the largest body that is sent here. A queue's is 128.5 KiB.
const maxRequest = 1 << 20

// requests hold requests while they are sent.
var requestBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// putBuffer gives a buffer back, unless it has grown out of proportion.
func putBuffer(pool *sync.Pool, b *[]byte) {
	if cap(*b) <= 4<<20 {
		pool.Put(b)
	}
}

// appendRequest appends the request as it goes over the wire. When usual is false
// it is one for the fallback, and still whole. An error means that the body cannot
// be read, or is not as long as was announced.
func appendRequest(dst []byte, r *http.Request) (out []byte, usual bool, err error) {
	switch r.Method {
	case http.MethodGet, http.MethodDelete, http.MethodPost, http.MethodPut:
	default:
		return nil, false, nil
	}
	u := r.URL
	if u.Opaque != "" || u.User != nil || r.Close || len(r.TransferEncoding) > 0 || r.Trailer != nil ||
		r.Host != "" && !plainHost(r.Host) || r.ContentLength < 0 || r.ContentLength > maxRequest {
		return nil, false, nil
	}
	dst = append(append(dst, r.Method...), ' ')
	from := len(dst)
	if path := u.EscapedPath(); path == "" {
		dst = append(dst, '/')
	} else {
		dst = append(dst, path...)
	}
	if u.ForceQuery || u.RawQuery != "" {
		dst = append(append(dst, '?'), u.RawQuery...)
	}
	if dst[from] != '/' || !isVisibleASCII(dst[from:]) {
		return nil, false, nil
	}
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	dst = append(dst, or(r.Host, u.Host)...)
	dst = append(dst, "\r\n"...)
	for name, values := range r.Header {
		if dst, usual = appendHeader(dst, name, values); !usual {
			return nil, false, nil
		}
	}
	return appendBody(dst, r)
}

// appendHeader appends the lines of one header, or tells that they are unusual.
func appendHeader(dst []byte, name string, values []string) (_ []byte, usual bool) {
	switch {
	case equalNames(name, "Host"), equalNames(name, "Content-Length"):
		return dst, true // the request says it elsewhere, as in net/http
	case equalNames(name, "Connection"), equalNames(name, "Expect"), equalNames(name, "Keep-Alive"), equalNames(name, "TE"), equalNames(name, "Trailer"),
		equalNames(name, "Transfer-Encoding"), equalNames(name, "Upgrade"), len(name) > 6 && equalNames(name[:6], "Proxy-"), !isToken(name):
		return dst, false
	}
	for _, value := range values {
		value = strings.Trim(value, " \t")
		if !isValue(value) {
			return dst, false
		}
		if value == "" && equalNames(name, "User-Agent") {
			continue // which is how net/http is told to leave it out
		}
		dst = append(append(dst, name...), ": "...)
		dst = append(append(dst, value...), "\r\n"...)
	}
	return dst, true
}

// streaming returns the request for the fallback when its body is of unknown
// length, and nil when that body turns out to be empty, as most are whose length
// was left at zero. The byte that tells is put back, in a copy: the request is not
// ours.
func unknownLength(r *http.Request) (*http.Request, error) {
	if r.ContentLength != 0 || r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	var first [1]byte
	_, err := io.ReadFull(r.Body, first[:])
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the request's body: %w", err)
	}
	c := r.WithContext(r.Context())
	c.ContentLength = -1
	c.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:]), r.Body), r.Body}
	return c, nil
}

// appendBody appends the length, the end of the head, and the body.
func appendBody(dst []byte, r *http.Request) (out []byte, usual bool, err error) {
	length := int(r.ContentLength)
	if r.Body == nil {
		length = 0
	}
	if length > 0 || r.Method == http.MethodPost || r.Method == http.MethodPut {
		dst = append(dst, "Content-Length: "...)
		dst = strconv.AppendInt(dst, int64(length), 10)
		dst = append(dst, "\r\n"...)
	}
	dst = append(dst, "\r\n"...)
	if length == 0 {
		return dst, true, nil
	}
	from := len(dst)
	dst = append(dst, make([]byte, length+1)...) // a byte more, which must not come
	n, err := io.ReadFull(r.Body, dst[from:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, true, fmt.Errorf("read the request's body: %w", err)
	}
	if n != length {
		return nil, true, fmt.Errorf("the request's body is announced with %d bytes and has another length", length)
	}
	return dst[:from+length], true, nil
}

// same tells whether two names of headers are the same.
func equalNames(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// visible tells whether all bytes are visible characters of ASCII.
func isVisibleASCII(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c >= 0x7F {
			return false
		}
	}
	return true
}

// isToken is the production token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		if !tokens[s[i]] {
			return false
		}
	}
	return s != ""
}

var tokens = func() (table [256]bool) {
	for c := '!'; c <= '~'; c++ {
		table[c] = !strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	}
	return table
}()

// isValue tells whether s can be the value of a header: anything without control
// characters other than a tab.
func isValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7F {
			return false
		}
	}
	return true
}
