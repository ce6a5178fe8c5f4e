package emulator

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

// signingScheme is a way to sign a request with an account's key.
//
// The string to sign has a line for each part of the request, so a part with a line feed could
// pass for two. check refuses a request if another one with a different meaning has the same
// string to sign: whoever sees one signature must not be able to use it for another request.
type signingScheme struct {
	check      func(*call) *failure
	appendText func(c *call, dst []byte, resource string) []byte // appends the string to sign to dst
}

var (
	sharedKey     = signingScheme{(*call).checkStringToSign, (*call).appendStringToSign}
	sharedKeyLite = signingScheme{(*call).checkLiteStringToSign, (*call).appendLiteStringToSign}
)

// signedHeaders are the standard headers whose first values are signed.
var signedHeaders = [...]string{"Content-Encoding", "Content-Language", "Content-Md5", "Content-Type", "Date", "If-Modified-Since",
	"If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

// checkStringToSign refuses a request if another one has the same string to sign. Each parameter
// is a line "name:value", or "name:value,value".
func (c *call) checkStringToSign() *failure {
	if f := c.checkLiteStringToSign(); f != nil {
		return f
	}
	for i, p := range c.query {
		switch {
		case strings.ContainsAny(p.name, "\n:"):
			return denied("The name of a parameter has a line feed or a colon in it, which Shared Key cannot tell from the end of the name.")
		case strings.Contains(p.value, "\n"):
			return denied("The value of the parameter " + p.name + " has a line feed in it, which Shared Key cannot tell from another parameter.")
		case c.query[:i].has(p.name):
			return errInvalidQueryValue.with(
				queuexml.Detail{Name: "QueryParameterName", Value: p.name},
				queuexml.Detail{Name: "Reason", Value: "It is given more than once."})
		}
	}
	return nil
}

// checkLiteStringToSign refuses what neither scheme can distinguish: line feeds in headers, which
// are possible in process only; duplicate headers, whose values are joined by commas; and an
// ambiguous address.
func (c *call) checkLiteStringToSign() *failure {
	for _, name := range signedHeaders {
		if strings.Contains(firstValue(c.request.Header, name), "\n") {
			return denied("The header " + name + " has a line feed in it.")
		}
	}
	for name, values := range c.request.Header {
		if !strings.HasPrefix(name, "X-Ms-") {
			continue
		}
		if len(values) > 1 && !strings.HasPrefix(name, "X-Ms-Meta-") { // metadata is joined by commas as well
			return errInvalidHeaderValue.because("The header is given more than once.").with(queuexml.Detail{Name: "HeaderName", Value: name})
		}
		for _, value := range values {
			if strings.Contains(name, "\n") || strings.Contains(name, ":") || strings.Contains(value, "\n") {
				return denied("A header x-ms-… has a line feed in it.")
			}
		}
	}
	// The signed path starts with the account. So /account/messages is the same for the queue
	// "messages" in path style and for the messages of a queue named like the account in host
	// style. The first is the usual one.
	if c.hostStyle && strings.TrimSuffix(c.queue, secondarySuffix) == c.account {
		return denied("Shared Key cannot distinguish this host-style address of a queue that is named like the account from a path-style one: use the latter, /" +
			c.account + "/" + c.queue + ", or a shared access signature.")
	}
	return nil
}

// primaryResource converts the path of a request to the secondary location to that of the primary
// one. ok is false if there is none.
func (c *call) primaryResource() (resource string, ok bool) {
	if !c.secondary || c.hostStyle {
		return "", false
	}
	location, rest := c.resource, ""
	if end := strings.IndexByte(c.resource[1:], '/'); end >= 0 {
		location, rest = c.resource[:1+end], c.resource[1+end:]
	}
	primary, ok := strings.CutSuffix(location, secondarySuffix)
	return primary + rest, ok
}

// appendStringToSign appends the string to sign for Shared Key: verb, standard headers, x-ms-
// headers and the resource with its parameters (Authorize with Shared Key, "Blob, Queue, and File
// services").
func (c *call) appendStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }

	line(c.request.Method)
	line(firstValue(h, "Content-Encoding"))
	line(firstValue(h, "Content-Language"))
	if n := c.request.ContentLength; n > 0 { // empty when there is no body
		dst = strconv.AppendInt(dst, n, 10)
	}
	line("")
	line(firstValue(h, "Content-Md5"))
	line(firstValue(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("") // x-ms-date stands in for it
	} else {
		line(firstValue(h, "Date"))
	}
	line(firstValue(h, "If-Modified-Since"))
	line(firstValue(h, "If-Match"))
	line(firstValue(h, "If-None-Match"))
	line(firstValue(h, "If-Unmodified-Since"))
	line(firstValue(h, "Range"))

	dst = c.appendHeaders(dst)
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

// firstValue returns the first value of a header by its canonical name. Header.Get would
// canonicalize the name each time.
func firstValue(h http.Header, name string) string {
	if values := h[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// appendLiteStringToSign appends the string to sign for Shared Key Lite: fewer headers, and only
// the parameter comp (Authorize with Shared Key, "Blob, Queue, and File services (Shared Key
// Lite)").
func (c *call) appendLiteStringToSign(dst []byte, resource string) []byte {
	h := c.request.Header
	line := func(s string) { dst = append(append(dst, s...), '\n') }
	line(c.request.Method)
	line(firstValue(h, "Content-Md5"))
	line(firstValue(h, "Content-Type"))
	if len(h["X-Ms-Date"]) > 0 {
		line("")
	} else {
		line(firstValue(h, "Date"))
	}
	dst = c.appendHeaders(dst)
	dst = append(dst, '/')
	dst = append(dst, c.account...)
	dst = append(dst, resource...)
	if comp, found, _ := c.query.get("comp"); found { // duplicates were refused before
		dst = append(dst, "?comp="...)
		dst = append(dst, comp...)
	}
	return dst
}

// appendHeaders appends a line for each x-ms- header, ordered by name.
func (c *call) appendHeaders(dst []byte) []byte {
	h := c.request.Header
	var room [8]string
	names := room[:0]
	for name := range h { // canonical form, so names are unique
		if strings.HasPrefix(name, "X-Ms-") {
			names = append(names, name)
		}
	}
	if c.collated {
		slices.SortFunc(names, compareCollated)
	} else {
		slices.SortFunc(names, compareLower)
	}
	for _, name := range names {
		for i := range len(name) {
			dst = append(dst, lower(name[i]))
		}
		dst = append(dst, ':')
		for i, value := range h[name] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, strings.Trim(value, " \t")...) // as HTTP does
		}
		dst = append(dst, '\n')
	}
	return dst
}

func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// compareCollated compares names as the clients for Python and JavaScript do, which follow the
// service: hyphens are ignored, and an underscore sorts before digits.
func compareCollated(a, b string) int {
	i, j := 0, 0
	for {
		for i < len(a) && a[i] == '-' {
			i++
		}
		for j < len(b) && b[j] == '-' {
			j++
		}
		if i == len(a) || j == len(b) {
			return cmp.Or(cmp.Compare(len(a)-i, len(b)-j), compareLower(a, b))
		}
		if c := cmp.Compare(collationWeight(a[i]), collationWeight(b[j])); c != 0 {
			return c
		}
		i, j = i+1, j+1
	}
}

func collationWeight(c byte) byte {
	if c == '_' {
		return '0' - 1
	}
	return lower(c)
}

// collates reports whether the two header orders may differ: only metadata names have
// underscores.
func collates(h http.Header) bool {
	for name := range h {
		if strings.HasPrefix(name, "X-Ms-Meta-") && strings.IndexByte(name, '_') >= 0 {
			return true
		}
	}
	return false
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
