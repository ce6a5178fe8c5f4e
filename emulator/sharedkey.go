package emulator

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxSkew is how old or how early the date of a request may be (Authorize with
// Shared Key, "Specifying the Date header").
const maxSkew = 15 * time.Minute

// usualText is how many bytes are signed, hardly ever more.
const usualText = 512

// account is who may sign requests.
type account struct {
	key    []byte    // never changes
	hashes sync.Pool // of hash.Hash keyed with the key

	requests *bucket // how many are left; nil without a limit. Set before the server serves
}

func newAccount(key []byte) *account {
	a := &account{key: slices.Clone(key)}
	a.hashes.New = func() any { return hmac.New(sha256.New, a.key) }
	return a
}

// authenticateKey refuses a request that is not signed with the key of the
// account it addresses. The credentials are the account and the signature; what
// was signed differs between SharedKey and SharedKeyLite.
func (c *call) authenticateKey(credentials string, appendText func(*call, []byte, string) []byte) *failure {
	name, encoded, ok := strings.Cut(strings.TrimSpace(credentials), ":")
	if !ok {
		return errInvalidAuthentication
	}
	signature, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return errInvalidAuthentication
	}
	if name != c.account {
		return denied("The account that signed is not the account in the address.")
	}
	if f := c.server.checkDate(c.request.Header); f != nil {
		return f
	}
	c.signedText = appendText(c, c.signedText[:0], c.resource)
	if c.known.signed(c.signedText, signature) {
		return nil
	}
	if c.secondary && !c.hosted {
		// The documents want the address of the primary location to be signed,
		// clients sign what they call. Both mean the same.
		primary := strings.Replace(c.resource, secondarySuffix, "", 1)
		if c.known.signed(appendText(c, nil, primary), signature) {
			return nil
		}
	}
	return denied("The signature does not match: check the account key.")
}

// signed compares in constant time, so that a signature cannot be guessed byte
// by byte.
func (a *account) signed(text, signature []byte) bool {
	h := a.hashes.Get().(hash.Hash)
	defer a.hashes.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	return hmac.Equal(h.Sum(sum[:0]), signature)
}

// dated is a date as it was written, and what it means.
type dated struct {
	text string
	at   time.Time
}

// checkDate keeps the last date that it read: clients that are busy send the same one for
// a second.
func (s *Server) checkDate(h http.Header) *failure {
	value := first(h, "X-Ms-Date")
	if value == "" {
		value = first(h, "Date")
	}
	if value == "" {
		return denied("The request has no x-ms-date and no Date.")
	}
	last := s.lastDate.Load()
	if last == nil || last.text != value {
		at, err := http.ParseTime(value)
		if err != nil {
			return denied("The date of the request is not in the format of RFC 1123.")
		}
		last = &dated{strings.Clone(value), at}
		s.lastDate.Store(last)
	}
	if skew := time.Since(last.at); skew > maxSkew || skew < -maxSkew {
		return denied("The date of the request is more than 15 minutes off: check the clock.")
	}
	return nil
}

// appendStringToSign appends what the client has signed: the verb, standard
// headers, all x-ms- headers and the resource with its parameters (Authorize with
// Shared Key, "Blob, Queue, and File services").
func (c *call) appendStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }

	line(c.request.Method)
	line(first(h, "Content-Encoding"))
	line(first(h, "Content-Language"))
	if n := c.request.ContentLength; n > 0 { // empty when there is no body
		dst = strconv.AppendInt(dst, n, 10)
	}
	line("")
	line(first(h, "Content-Md5"))
	line(first(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("") // x-ms-date stands in for it
	} else {
		line(first(h, "Date"))
	}
	line(first(h, "If-Modified-Since"))
	line(first(h, "If-Match"))
	line(first(h, "If-None-Match"))
	line(first(h, "If-Unmodified-Since"))
	line(first(h, "Range"))

	dst = appendHeaders(dst, h)
	dst = append(dst, '/')
	dst = append(dst, c.account...)
	dst = append(dst, resource...)
	sorted := c.query.sorted()
	for i, p := range sorted {
		if i > 0 && sorted[i-1].name == p.name { // values of one name are joined
			dst = append(dst, ',')
		} else {
			dst = append(dst, '\n')
			dst = append(dst, p.name...)
			dst = append(dst, ':')
		}
		dst = append(dst, p.value...)
	}
	return dst
}

// first is the first value of a header by its canonical name: Get would make that of it
// again, a dozen times a request.
func first(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// appendLiteStringToSign appends what the client has signed under the scheme
// SharedKeyLite: fewer headers, and of the parameters only comp (Authorize with
// Shared Key, "Blob, Queue, and File services (Shared Key Lite)").
func (c *call) appendLiteStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }
	line(c.request.Method)
	line(first(h, "Content-Md5"))
	line(first(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("")
	} else {
		line(first(h, "Date"))
	}
	dst = appendHeaders(dst, h)
	dst = append(dst, '/')
	dst = append(dst, c.account...)
	dst = append(dst, resource...)
	if comp, found, _ := c.query.get("comp"); found { // twice was refused before
		dst = append(dst, "?comp="...)
		dst = append(dst, comp...)
	}
	return dst
}

// appendHeaders appends all x-ms- headers, a line for each, in the order of
// their names.
func appendHeaders(dst []byte, h http.Header) []byte {
	var room [8]string
	names := room[:0]
	for name := range h { // canonical case, so that equal names are one
		if strings.HasPrefix(name, "X-Ms-") {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, compareFolded)
	for _, name := range names {
		for i := range len(name) {
			dst = append(dst, lower(name[i]))
		}
		dst = append(dst, ':')
		for i, value := range h[name] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, strings.TrimSpace(value)...)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// compareFolded orders names as their lower-case forms are ordered.
func compareFolded(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
