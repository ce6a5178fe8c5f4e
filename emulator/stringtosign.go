package emulator

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/internal/queuexml"
)

// signingScheme is how a request is signed with the key of an account.
//
// What is signed is a text of lines that are made of parts of the request, and a part with a
// line feed in it would pass for two. So check refuses requests whose text another one could
// have too that means something else: who has seen one signature must not have two.
type signingScheme struct {
	check      func(*call) *failure
	appendText func(c *call, dst []byte, resource string) []byte // appends the string to sign
}

var (
	sharedKey     = signingScheme{(*call).checkStringToSign, (*call).appendStringToSign}
	sharedKeyLite = signingScheme{(*call).checkLiteStringToSign, (*call).appendLiteStringToSign}
)

// signedHeaders are the standard headers that are signed, by the first value of each.
var signedHeaders = [...]string{"Content-Encoding", "Content-Language", "Content-Md5", "Content-Type", "Date", "If-Modified-Since",
	"If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

// checkStringToSign refuses a request whose string to sign another request has too. Of the
// parameters, each is a line of its own there: "name:value", or "name:value,value".
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

// checkLiteStringToSign refuses what neither scheme can tell apart: line feeds in headers,
// which only reach us in process, headers that are given more than once, whose values are
// joined by commas, and an address that means two things.
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
	// The account is in front of the path that is signed. So /account/messages is signed alike for
	// the queue "messages", path-style, and for the messages of a queue named like the account,
	// host-style. The first is what everyone calls.
	if c.hostStyle && strings.TrimSuffix(c.queue, secondarySuffix) == c.account {
		return denied("Shared Key cannot tell this host-style address of a queue that is named like the account from a path-style one: use that, /" +
			c.account + "/" + c.queue + ", or a shared access signature.")
	}
	return nil
}

// primaryResource is the path that was sent to the secondary location as it would be at the
// primary one. It is false where there is no such path.
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

// appendStringToSign appends what the client has signed: the verb, standard
// headers, all x-ms- headers and the resource with its parameters (Authorize with
// Shared Key, "Blob, Queue, and File services").
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

// first is the first value of a header by its canonical name: Get would make that of it
// again, a dozen times a request.
func firstValue(h http.Header, name string) string {
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
	if comp, found, _ := c.query.get("comp"); found { // twice was refused before
		dst = append(dst, "?comp="...)
		dst = append(dst, comp...)
	}
	return dst
}

// appendHeaders appends all x-ms- headers, a line for each, in the order of
// their names.
func (c *call) appendHeaders(dst []byte) []byte {
	h := c.request.Header
	var room [8]string
	names := room[:0]
	for name := range h { // canonical case, so that equal names are one
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
			dst = append(dst, strings.Trim(value, " \t")...) // as HTTP does, and no more
		}
		dst = append(dst, '\n')
	}
	return dst
}

// compareFolded orders names as their lower-case forms are ordered.
func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

// compareCollated orders names as the clients for Python and JavaScript do, which follow the
// service in this: hyphens do not count, and an underscore is before digits.
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

// collates reports whether the two orders of headers may differ: only metadata has
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
