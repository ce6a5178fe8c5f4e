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

// maxRequest is the largest request body that is sent here, in bytes. The queue service allows
// 128.5 KiB.
const maxRequest = 1 << 20

// requestBuffers hold requests while they are sent.
var requestBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// putBuffer returns a buffer to the pool unless it is larger than 4 MiB.
func putBuffer(pool *sync.Pool, b *[]byte) {
	if cap(*b) <= 4<<20 {
		pool.Put(b)
	}
}

// appendRequest appends the request in wire format. If usual is false the fallback must send it;
// nothing of its body has been read. The error means that the body could not be read or does not
// have the declared length.
func appendRequest(dst []byte, r *http.Request) (out []byte, usual bool, err error) {
	switch r.Method {
	case http.MethodGet, http.MethodDelete, http.MethodPost, http.MethodPut:
	default:
		return nil, false, nil
	}
	u := r.URL
	if u.Opaque != "" || u.User != nil || r.Close || len(r.TransferEncoding) > 0 || r.Trailer != nil ||
		r.Host != "" && !httpsyntax.IsPlainHost(r.Host) || r.ContentLength < 0 || r.ContentLength > maxRequest {
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

// appendHeader appends a header's lines. It returns false if the fallback must send the request.
func appendHeader(dst []byte, name string, values []string) (_ []byte, usual bool) {
	switch {
	case equalNames(name, "Host"), equalNames(name, "Content-Length"):
		return dst, true // taken from the request's fields, as in net/http
	case equalNames(name, "Connection"), equalNames(name, "Expect"), equalNames(name, "Keep-Alive"), equalNames(name, "TE"), equalNames(name, "Trailer"),
		equalNames(name, "Transfer-Encoding"), equalNames(name, "Upgrade"), len(name) > 6 && equalNames(name[:6], "Proxy-"), !httpsyntax.IsToken(name):
		return dst, false
	}
	for _, value := range values {
		value = httpsyntax.Trim(value)
		if !httpsyntax.IsValue(value) {
			return dst, false
		}
		if value == "" && equalNames(name, "User-Agent") {
			continue // an empty User-Agent is omitted, as in net/http
		}
		dst = append(append(dst, name...), ": "...)
		dst = append(append(dst, value...), "\r\n"...)
	}
	return dst, true
}

// unknownLength returns the request for the fallback if its body is not empty and of unknown
// length, and nil otherwise. It puts the byte that it read to find out back, in a copy: the
// caller owns the request.
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
		return nil, fmt.Errorf("read the request body: %w", err)
	}
	c := r.WithContext(r.Context())
	c.ContentLength = -1
	c.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(first[:]), r.Body), r.Body}
	return c, nil
}

// appendBody appends Content-Length, the end of the head, and the body.
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
	dst = append(dst, make([]byte, length+1)...) // one more byte, to detect a longer body
	n, err := io.ReadFull(r.Body, dst[from:])
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, true, fmt.Errorf("read the request body: %w", err)
	}
	if n != length {
		return nil, true, fmt.Errorf("the request body does not have its declared length of %d bytes", length)
	}
	return dst[:from+length], true, nil
}

func equalNames(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// isVisibleASCII reports whether the text consists of visible ASCII characters.
func isVisibleASCII(text []byte) bool {
	for _, c := range text {
		if c <= ' ' || c >= 0x7F {
			return false
		}
	}
	return true
}
